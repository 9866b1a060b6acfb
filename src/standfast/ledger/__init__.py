"""The ledger: effects, decisions, approvals and gates, webhook events, credits and budgets.

Without it, replay safety and audit are lost. So the state of a row only moves forward, and its key outlives it.
"""
