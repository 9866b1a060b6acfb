"""The ledger: what was done to the outside world, what was decided, who said yes.

Lost, replay safety and audit would be gone; so its rows are only ever moved forward, and their
keys outlive them.
"""
