"""What every solver returns: a value, its errors, a result code whose message names the remedy."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from smisym.base.cards import Card, Drawn, Grid, Picture, Shown, Tabled
from smisym.base.edge import check_number
from smisym.base.errors import InputError, NotConverged
from smisym.base.outcome import Numbers, Outcome


class Result(enum.Enum):
    """How a solve ended. The value is what files hold; ``message`` names the remedy, where samples were set by hand."""

    SUCCESS = "success"
    MAX_STEPS = "max_steps"
    DIVERGED = "diverged"
    INTEGRATION = "integration_inaccurate"
    ILL_CONDITIONED = "ill_conditioned"
    EXCLUDED = "output_excluded"
    NOISY = "statistical_error_large"
    MISSED = "accuracy_missed"
    RESIDUAL = "not_a_fixed_point"
    NISHIMORI = "nishimori_violated"
    INCONSISTENT = "inconsistent"
    PARTIAL = "partial"
    INTERRUPTED = "interrupted"

    @property
    def ok(self) -> bool:
        return self is Result.SUCCESS

    @property
    def message(self) -> str:
        return _MESSAGES[self]

    def told(self, accuracy: bool) -> str:
        """The message; where an accuracy was asked for samples follow from it, and other settings help."""
        return _ASKED.get(self, self.message) if accuracy else self.message


_MESSAGES = {
    Result.SUCCESS: "converged",
    Result.MAX_STEPS: (
        "stopped at the largest number of steps before converging: raise max_steps; for GAMP also add damping"
    ),
    Result.DIVERGED: "the iteration left the domain or became non-finite: add damping, or start closer",
    Result.INTEGRATION: (
        "an inner integral missed its tolerance: loosen rtol and read the error; of single posteriors, raise max_nodes"
    ),
    Result.ILL_CONDITIONED: (
        "y determines the fields to few digits only (nearly equal scores, or attention that is small beside a skip): "
        "pass the Observation of model.observe, not y"
    ),
    Result.EXCLUDED: (
        "y lies twenty standard deviations or more from where omega and V have it, and maxima of such a posterior may "
        "be missed: check y, omega and V, and if V is too small raise it; of GAMP add damping"
    ),
    Result.NOISY: (
        "a statistical error is larger than asked for (of a transition than 5 %), or noise biases the value as much: "
        "raise samples"
    ),
    Result.MISSED: (
        "the error that was reached, and is stated, is larger than the accuracy asked for: raise most_samples or the "
        "time limit, or ask for less"
    ),
    Result.RESIDUAL: (
        "put back into the equation that it solves, the value does not solve it to within its error: raise samples, "
        "and of a fixed point lower tol"
    ),
    Result.NISHIMORI: (
        "estimators that agree under the posterior of this model disagree beyond chance: a chart lacks a sheet, a "
        "Jacobian or an error bar is wrong; lower rtol, and if it stays, do not trust the chart"
    ),
    Result.INCONSISTENT: (
        "two ways to the same number disagree beyond their errors: raise samples, and begin with an empty state folder"
    ),
    Result.PARTIAL: (
        "what is learned later was not looked for: overlaps are coupled, and no symmetry tells what is learned first "
        "from what is not; take stages up to here, and read later ones off a curve. Of branches: one was lost; raise "
        "samples"
    ),
    Result.INTERRUPTED: "interrupted: run the same command again with the same --state to resume",
}
_MORE = "raise samples"
# With an accuracy asked for, whose search ended with as many samples as it may take.
_ASKED = {code: text.replace(_MORE, "raise most_samples") for code, text in _MESSAGES.items() if _MORE in text} | {
    Result.MAX_STEPS: "stopped at the largest number of steps before converging: raise most_samples, or max_steps",
}


def worst(results: Sequence[Result]) -> Result:
    """The gravest of these: a value that is wrong comes before one that is rough."""
    return max(results, key=_GRAVITY.index, default=Result.SUCCESS)


_GRAVITY = [
    Result.SUCCESS,
    Result.PARTIAL,
    Result.MISSED,
    Result.NOISY,
    Result.INTEGRATION,
    Result.ILL_CONDITIONED,
    Result.EXCLUDED,
    Result.MAX_STEPS,
    Result.RESIDUAL,
    Result.INCONSISTENT,
    Result.NISHIMORI,
    Result.DIVERGED,
    Result.INTERRUPTED,
]


@dataclass(frozen=True)
class Solution(Shown, Tabled, Drawn):
    """The outcome of one solve.

    value
        What was solved for (a float, an array, or a tuple of records).
    statistical_error
        One standard error of ``value`` from independent scrambles; same shape; None if deterministic.
    deterministic_error
        What is left of the equation when the reported value is put back into it, in the unit of the value; same
        shape; None where there is no such equation.
    degrees_of_freedom
        Of the Student t that the statistical error follows (scrambles - 1), or None.
    result
        A :class:`Result`; :attr:`message` names the remedy.
    history
        Records of the iterations, oldest first.
    settings
        What reproduces it: every number that entered; versions, seed, architecture.
    checks
        What the value was held against, by name: "residual" (what is left of the equation, in the unit of the value),
        "nishimori" (see :class:`smisym.theory.sentinel.Agreement`), ...  Empty where nothing was.
    """

    value: Any
    result: Result
    statistical_error: Any = None
    deterministic_error: Any = None
    degrees_of_freedom: int | None = None
    history: tuple[dict[str, Any], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """How the solve ended, with the remedy that these settings leave."""
        return self.result.told(accuracy="accuracy" in self.settings)

    def __repr__(self) -> str:
        """Value, error and result in one line, arrays shortened; :meth:`summary` says more."""
        error = "" if self.statistical_error is None else f" +- {short(self.statistical_error)}"
        return f"<Solution: {short(self.value)}{error}; {self.result.value}>"

    def summary(self) -> str:
        """A few readable lines: the value (shortened), its errors, how the solve ended, and what it was checked by."""
        lines = [f"value   {short(self.value)}"]
        if self.statistical_error is not None:
            freedom = f", {self.degrees_of_freedom} degrees of freedom" if self.degrees_of_freedom else ""
            lines.append(f"error   {short(self.statistical_error)} (one standard error{freedom})")
        if self.deterministic_error is not None:
            lines.append(f"        {short(self.deterministic_error)} (left of the equation with this value put back)")
        lines.append(f"result  {self.result.value}: {self.message}")
        if self.history:
            lines.append(f"history {len(self.history)} records")
        # What is the deterministic error as well is told already.
        told = [] if self.deterministic_error is None else [np.asarray(self.deterministic_error)]
        new = {name: value for name, value in self.checks.items() if not any(_equal(value, known) for known in told)}
        lines += [f"check   {name}: {short(value)}" for name, value in new.items()]
        return "\n".join(lines)

    @property
    def _of(self) -> Outcome:
        return self.value if isinstance(self.value, Outcome) else Numbers(self.value)

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        return self._of.card_of(self)

    def grid(self) -> Grid:
        """Value, errors and how they were found, as arrays along named dimensions."""
        return self._of.grid_of(self)

    def picture(self) -> Picture:
        """What ``plot`` draws: the overlap of a fixed point, thresholds, or the steps of GAMP."""
        return self._of.picture_of(self)

    def raise_if_failed(self) -> Solution:
        """Return self when converged, else raise :class:`~smisym.base.errors.NotConverged`."""
        if not self.result.ok:
            raise NotConverged(self.message)
        return self

    def interval(self, confidence: float = 0.95) -> tuple[Any, Any]:
        """Student t interval of ``value`` from the statistical error alone; of a fixed point, that of its overlap Q.

        Raises InputError for a confidence that is not between 0 and 1, and for a value that is a table of several
        numbers, as thresholds are: each has its own error.
        """
        if not 0 < check_number("confidence", confidence, "a number between 0 and 1", "leave it out for 0.95") < 1:
            raise InputError("confidence", confidence, "a number between 0 and 1", "leave it out for 0.95")
        value = getattr(self.value, "Q", self.value)
        if isinstance(value, tuple | list | dict):
            fix = "read the errors of its parts"
            raise InputError("value", type(self.value).__name__, "a number, an array or a fixed point", fix)
        if self.statistical_error is None or not self.degrees_of_freedom:
            return value, value
        half = special.stdtrit(self.degrees_of_freedom, 0.5 + confidence / 2) * np.asarray(self.statistical_error)
        return value - half, value + half


_ENTRIES, _DIGITS, _LONGEST = 8, 5, 200


def short(value: Any) -> str:
    """``value`` in one short line: numbers to five digits, small arrays in full, of larger ones the shape and range."""
    if isinstance(value, bool | np.bool_ | str | enum.Enum) or value is None:
        text = value if isinstance(value, str) else str(getattr(value, "value", value))
    elif isinstance(value, int | float | np.number):
        text = f"{value:.{_DIGITS}g}"
    elif isinstance(value, np.ndarray):
        text = _short_array(value)
    elif isinstance(value, tuple | list):
        shown = [short(item) for item in value[:_ENTRIES]]
        text = f"[{', '.join(shown)}{', ...' if len(value) > _ENTRIES else ''}]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {short(item)}" for key, item in value.items()) + "}"
    else:
        return " ".join(repr(value).split())  # one line, whatever is inside
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _equal(value: Any, known: np.ndarray) -> bool:
    return isinstance(value, np.ndarray) and value.shape == known.shape and bool(np.all(value == known))


def _short_array(array: np.ndarray) -> str:
    if array.size <= _ENTRIES * 2 or array.dtype.kind not in "fiu":
        return short(array.tolist())
    return f"array {array.shape}, from {np.min(array):.{_DIGITS}g} to {np.max(array):.{_DIGITS}g}"


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis (independent scrambles) and its standard error.

    A single scramble has no error bar: its error is infinite, not zero.
    """
    values = np.asarray(values, dtype=float)
    mean = values.mean(axis=0)
    if values.shape[0] < 2:
        return mean, np.full(mean.shape, np.inf)
    return mean, values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
