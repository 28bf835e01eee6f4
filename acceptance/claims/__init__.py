"""What the rules page may say, and how the machine is asked whether it is so."""

from . import limits, tiers, work  # each registers its claims
from .asking import CLAIMS, RULES, rules, understood

__all__ = ["CLAIMS", "RULES", "limits", "rules", "tiers", "understood", "work"]
