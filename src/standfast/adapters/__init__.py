"""Adapters: the interfaces of other agent frameworks, over standfast's resources.

Each adapter needs the extra of its framework. `import standfast` imports none of them.
"""
