"""Budgets: what agents may use, reserved before each call and settled after it.

           reserve                 settle
(nothing) ─────────▶ held ─────────────────────────▶ settled
                       ├─ release (nothing was sent) ▶ released
                       └─ holder gone = IN DOUBT (derived) ── settled by usage seen later, or by a person

    amounts    amounts in the four units, and the periods of a budget
    models     Budget, Hold, BudgetReport
    resource   `sf.budgets`
    block      `with s.budget(…)`
"""

from __future__ import annotations

from standfast.ledger.budgets.amounts import Amounts
from standfast.ledger.budgets.block import Spending
from standfast.ledger.budgets.models import Budget, BudgetReport, Hold
from standfast.ledger.budgets.resource import Budgets

__all__ = ["Amounts", "Budget", "BudgetReport", "Budgets", "Hold", "Spending"]
