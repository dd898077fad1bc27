"""Errors of the public edge: what was given, what is allowed, how to fix it."""

from __future__ import annotations


class SmisymError(Exception):
    """Base of every error that smisym raises on purpose."""


class InputError(SmisymError, ValueError):
    """A bad value at the public edge.

    The message has three parts, in this order: what was given, what is allowed, how to fix it.
    """

    def __init__(self, what: str, given: object, allowed: str, fix: str) -> None:
        self.what = what
        self.given = given
        self.allowed = allowed
        self.fix = fix
        super().__init__(f"{what}: given {_short(given)}; allowed: {allowed}. To fix: {fix}.")

    # Python sends an exception to another process by its arguments, which are not its message; what was given may be
    # something that cannot be sent.
    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what, Words(_short(self.given)), self.allowed, self.fix)


class NoChartError(SmisymError, NotImplementedError):
    """No rule found a chart of the level set; carries every rule's reason for refusing."""

    def __init__(self, refusals: list[tuple[str, str]]) -> None:
        self.refusals = refusals
        reasons = "; ".join(f"{rule}: {reason}" for rule, reason in refusals)
        super().__init__(
            f"no rule found a closed chart of the level set ({reasons}). To fix: declare noise > 0, which needs no "
            "chart, or supply one with smisym.register_chart: free fields, the others solved for as functions of these "
            "and of y, and the log of the Jacobian."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.refusals,)


class NotConverged(SmisymError, RuntimeError):
    """A solver stopped before it converged and the caller asked for an error rather than a code."""


class DerivationError(SmisymError, ArithmeticError):
    """A check of a step of a derivation failed: nothing is written of a model that is not what it says to be.

    step: title of the step.  claim: what should hold.  found: what was found instead.
    """

    def __init__(self, step: str, claim: str, found: str) -> None:
        self.step, self.claim, self.found = step, claim, found
        super().__init__(
            f"the derivation stops at {step!r}: expected {claim}; found {found}. A chart, a channel or a prior of your "
            "own may be wrong; for one of smisym's this is a defect: please report it with the declaration"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.step, self.claim, self.found)


class OutOfTime(SmisymError, TimeoutError):
    """The time that the caller gave a map is spent; says what was being solved and what an evaluation costs."""


class Words(str):
    """What was given, in words: an error prints it without quotes."""


def _short(value: object) -> str:
    if isinstance(value, Words):
        return str(value)
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python writes out no integer of thousands of digits, and no deep nesting
        return f"{'an integer' if isinstance(value, int) else 'a ' + type(value).__name__} too large to write out"
    return text if len(text) <= 120 else text[:117] + "..."
