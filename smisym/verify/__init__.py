"""Verification of a declared architecture: everything that must hold of it, with counterexamples that shrink.

``check(declaration)`` gives a :class:`Report`; ``assert_holds(declaration)`` is for tests of one's own; the strategies
of hypothesis are in :mod:`smisym.verify.strategies`.  Needs ``pip install 'smisym[verify]'``, and says so; the modules
that draw nothing with hypothesis (chance, identities, averages, tokens, depth) are imported without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smisym.verify.properties import Property, Tried
    from smisym.verify.reports import Report, Row
    from smisym.verify.suite import PROPERTIES, assert_holds, check

# What needs hypothesis when it is first asked for: name to module.
_LATER = {
    "PROPERTIES": "suite", "Property": "properties", "Report": "reports", "Row": "reports", "Tried": "properties",
    "assert_holds": "suite", "check": "suite",
}  # fmt: skip

__all__ = ["PROPERTIES", "Property", "Report", "Row", "Tried", "assert_holds", "check"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'smisym.verify' has no attribute {name!r}")
    from smisym.base.extras import needed

    needed("hypothesis", "verify")
    return getattr(importlib.import_module(f"smisym.verify.{_LATER[name]}"), name)
