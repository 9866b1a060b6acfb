"""Where people already are: other frameworks' interfaces over our resources.

Each module needs its extra, and nothing here is imported by `import standfast`.
"""
