"""Verification of a declared architecture: everything that must hold of it, with counterexamples that shrink.

``check(declaration)`` gives a :class:`Report`; ``assert_holds(declaration)`` is for tests of one's own; the strategies
of hypothesis are in :mod:`smisym.verify.strategies`.  Needs ``pip install 'smisym[verify]'``, and says so.
"""

from smisym.verify.extra import needed

needed()

from smisym.verify.properties import Property, Tried  # noqa: E402
from smisym.verify.reports import Report, Row  # noqa: E402
from smisym.verify.suite import PROPERTIES, assert_holds, check  # noqa: E402

__all__ = ["PROPERTIES", "Property", "Report", "Row", "Tried", "assert_holds", "check"]
