"""GAMP: generalised approximate message passing on finite data, for any SMI model.

The data are N samples of T tokens in dimension D, ``y_mu = f(W X_mu^T / sqrt(D))``; the unknown is W (P, D),
with rows N(0, I_D).  One step turns (W_hat, C_hat, g) into the next:

    V = C_hat;   omega_mu = W_hat X_mu^T / sqrt(D) - V g_mu            (g of the step before: the Onsager term)
    g_mu = V^{-1} (E[Z_mu | y_mu, omega_mu, V] - omega_mu)             (the channel)
    A = -(1/D) sum_mu sum_t d g_mu[:, t] / d omega_mu[:, t],  or  (1/D) sum_mu g_mu g_mu^T
    C_hat = (I + A)^{-1};   W_hat = C_hat ((1/sqrt D) sum_mu g_mu X_mu + A W_hat)

(arXiv 2502.00901, appendix B).  Side information ``S = sqrt(lam) W + N(0, 1)`` adds lam I to the inverse of C_hat and
sqrt(lam) S to the bracket.  The overlap of W_hat with W follows state evolution, step by step, as D grows at
fixed alpha = N / D.

Where heads split the embedding into H slices, a row of W is (D/H,) and sees its slice of the tokens alone: D/H takes
the place of D, rows on different slices have no overlap, and A couples none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from smisym.base.edge import check_count, check_damping, check_model, check_number, check_seed, real_array
from smisym.base.errors import InputError, Words
from smisym.base.iterating import Diverged, iterate
from smisym.base.solution import Result, Solution
from smisym.finite.alignment import align
from smisym.finite.estimated import Gamp
from smisym.finite.gamp_step import State, Step, overlap
from smisym.finite.samples import LinkSymmetry, Outputs, SampleModel, check_array, check_data, flatten
from smisym.integrate.accuracy import GAMP
from smisym.prior import Prior

PERFECT = 1e-13  # posterior variance below which W_hat holds W to the rounding of the data
COLLAPSED = 1e-26  # posterior variance that no arithmetic on the data can support
HOPELESS = 1e6  # the same beyond which no step brings C_hat back: it shrinks on, and posteriors get dearer with it
SLACK = 100.0  # true error over the change of one step, at most, where convergence is believed

_LATE = 10  # steps that tell how a run that stopped early was going
_SHRINKS = 0.98  # factor of the change from step to step above which more steps are no remedy
_SETTLING = 0.1  # change of a step below which it is the approach to a fixed point that is seen
_STILL = 1e-3  # movement of overlaps that no figure shows

_STREAM = (0x67A,)  # spawn key of the random start

PERFECT_RECOVERY = "perfect recovery to rounding"


# Many parameters: settings, all by keyword.
def gamp(
    model: SampleModel,
    X: np.ndarray,
    y: np.ndarray | Outputs | None = None,
    *,
    W: np.ndarray | None = None,
    max_steps: int = 100,
    damping: float = 0.0,
    side_information: tuple[float, np.ndarray] | None = None,
    initial: np.ndarray | float | None = None,
    tol: float = 1e-5,
    rtol: float | None = None,
    A: Literal["hessian", "outer"] = "hessian",
    callback: Callable[[dict[str, Any]], object] | None = None,
    seed: int | np.random.Generator = 0,
) -> Solution:
    """Estimate the weights W of ``model`` from data, by GAMP.

    X (N, T, D)
        Tokens, i.i.d. N(0, 1) (the theory assumes it: standardise your own data).  Not copied when it is a
        C-ordered float64 array.
    y (N, ...)
        Outputs, as an array with the shape of ``model.link`` or, better, as what ``model.observe`` returns, which
        keeps the digits that a float y loses.
    W (P, D)
        The truth, if known: it serves only to report overlaps.  (P, D/H) where heads split the embedding, as all that
        has the shape of W.
    damping in [0, 1)
        Share of the old state (W_hat, C_hat, g) kept at each step; it moves no fixed point.  State evolution describes
        the undamped steps; on few data these may go on oscillating about the fixed point, and 0.2 to 0.4 settles them.
    side_information (lam, S)
        lam >= 0 and S (P, D) = sqrt(lam) W + N(0, 1).
    initial
        None: with side information, the posterior mean from it alone; without, W_hat i.i.d. N(0, 1/D), small and
        random, since an even model never leaves W_hat = 0 (its self-overlap is then as large as its chance
        overlap with the truth, 1/D).  A float s: W_hat i.i.d. N(0, s^2).  An array (P, D): a start that is a
        posterior mean, so that C_hat = I - W_hat W_hat^T / D, which must be positive definite.
    tol
        Converged when W_hat and Q change by less, relative to the larger of themselves and their start, and the fields
        found are not many standard deviations from where C_hat has them (else an estimate that stands still because
        C_hat collapsed would pass).
    rtol
        Accuracy asked of the channel's means, in the V-norm, sample by sample.  None: 1e-3, or the channel's own
        default where that is coarser; averaged over samples it reaches W_hat far below its fluctuations.
    A
        "hessian", minus the mean derivative of g, or "outer", the mean of g g^T.  They agree as D grows when the model
        is the one that made the data.  On finite data "outer" can collapse on the way to perfect recovery: where
        errors exceed C_hat it shrinks C_hat further, and W_hat freezes short of the truth (not reported as success).
    callback
        Called with each step's record; what it returns is ignored.
    seed
        Of the random start: an int (whose stream no other use of the same int shares) or a Generator.

    Returns a Solution whose value is a :class:`Gamp` and whose history has one record per step, the start as step 0:
    step, overlap, cosines (P,) (None without W), Q, C_hat, change, surprise (largest ratio over directions of the mean
    (m - omega)(m - omega)^T to the V of that step, at most about 1 when V is the covariance of the error),
    channel_error (error of the channel as it reaches W_hat: root mean square per entry, in posterior standard
    deviations), channel (its result code).  Results: SUCCESS; MAX_STEPS; DIVERGED; INTERRUPTED (Ctrl-C: the value is
    the last full step); else the channel's own code at the last step.

    Raises InputError for arrays of wrong shape or unequal length, values that are not finite, outputs that no fields
    give, D < 2 or not a multiple of the number of slices, and bad options.
    Source: arXiv 2502.00901, appendix B.
    """
    check_model(model)
    if y is None:
        # Most often what generate() returned was passed as a whole.
        given = Words(f"one argument of type {type(X).__name__}")
        allowed = "tokens X and their outputs y, one after the other"
        raise InputError("data", given, allowed, "write smisym.gamp(model, data.X, data.y)")
    X, y, W = check_data(model, X, y, W)
    P, D = model.fields, model.prior.row_dimension(X.shape[2])
    rtol = max(GAMP, model.channel.default_rtol()) if rtol is None else rtol
    _check_options(max_steps, damping, tol, rtol, A)
    lam, S = _check_side_information(side_information, (P, D))
    # A stream of its own: with the bare seed, a user who drew the data from the same seed would start at the truth.
    own = seed if isinstance(seed, np.random.Generator) else np.random.SeedSequence(check_seed(seed), spawn_key=_STREAM)
    rng = np.random.default_rng(own)
    start = _start(initial, lam, S, model, X.shape, rng)
    step = Step(model, flatten(X), y, damping, lam, S, rtol, A)
    settings = {
        "samples": X.shape[0], "dim": X.shape[2], "alpha": model.prior.alpha(X.shape[0], X.shape[2]),
        "max_steps": max_steps,
        "damping": damping,
        "tol": tol, "rtol": rtol, "A": A, "side_information": lam, "initial": _describe(initial, lam),
        "seed": seed if isinstance(seed, int) else "generator",
    }  # fmt: skip
    judge = _Judge(model.symmetry, model.prior, W, start, tol, damping)
    ended = iterate(
        step, start, max_steps=max_steps, record=judge.record, stop=judge.stop, callback=callback,
        keep_interrupted=True,
    )  # fmt: skip
    state, last, reason = ended.state, ended.last, ended.reason
    if ended.result is Result.MAX_STEPS:
        hidden = "the errors far exceed C_hat" + _REMEDY if state.hidden_error > 0 else None
        reason = f"made all {max_steps} steps; {hidden or _what_blocks(ended.history, tol, damping)}"
    value = Gamp(state.W_hat, state.C_hat, state.Q, last["overlap"], last["step"], reason, _names(model))
    return Solution(value, ended.result, history=tuple(ended.history), settings=settings)


def _names(model: SampleModel) -> tuple[str, ...]:
    # A model of one's own may have no names for its rows.
    return tuple(getattr(model, "labels", ()))


_REMEDY = " (add damping, take more data, check that the data follow the model)"


@dataclass(frozen=True)
class _Judge:
    """What is recorded of each state, and when to stop."""

    symmetry: LinkSymmetry
    prior: Prior
    W: np.ndarray | None
    start: State
    tol: float
    damping: float

    def record(self, number: int, old: State | None, new: State) -> dict[str, Any]:
        overlap, cosines = None, None
        if self.W is not None:
            found, truth = (self.prior.in_units(W) for W in (new.W_hat, self.W))
            overlap, cosines = align(self.symmetry, found, truth, self.prior.row_slices)
        return {
            "step": number,
            "overlap": overlap,
            "cosines": cosines,
            "Q": new.Q,
            "C_hat": new.C_hat,
            "change": None if old is None else self._change(old, new),
            "surprise": new.surprise,
            "channel_error": new.channel_error,
            "channel": new.channel.value,
        }

    def _change(self, old: State, new: State) -> float:
        # As if undamped, or strong damping would pass for convergence.  Relative to the start where that is larger: an
        # estimate that decays to zero (nothing to be learned) converges, while one that slowly grows out of a small
        # start does not pass for converged.
        taken = 1 - self.damping
        pairs = ((old.W_hat, new.W_hat, self.start.W_hat), (old.Q, new.Q, self.start.Q))
        return max(_relative(np.linalg.norm(b - a) / taken, np.linalg.norm(b), np.linalg.norm(s)) for a, b, s in pairs)

    def stop(self, state: State, record: dict[str, Any]) -> tuple[Result, str] | None:
        """What it ends with and why, or None.  Raises Diverged when C_hat left the range of the arithmetic."""
        reason = self._reason(state, record["change"])
        return None if reason is None else (state.channel, reason)

    def _reason(self, state: State, change: float) -> str | None:
        variances = np.linalg.eigvalsh(state.C_hat)
        if variances[-1] < PERFECT and state.hidden_error <= SLACK * math.sqrt(PERFECT):
            return PERFECT_RECOVERY
        if variances[0] < COLLAPSED or (state.surprise is not None and state.surprise > HOPELESS):
            raise Diverged("C_hat collapsed: the errors far exceed it" + _REMEDY)
        if change <= self.tol and state.hidden_error <= SLACK * self.tol:
            return "converged"
        return None


def _what_blocks(history: Sequence[dict[str, Any]], tol: float, damping: float) -> str:
    """Of a run that made all its steps: whether the overlaps stand still, and what keeps the estimate from converging.

    On finite data W_hat circles or creeps about the fixed point for longer than its overlaps tell.
    """
    late = history[-(_LATE + 1) :]
    changes = [record["change"] for record in late if record["change"]]
    if not changes:
        return "no step changed the estimate"
    last, shrinks = changes[-1], (changes[-1] / changes[0]) ** (1 / max(len(changes) - 1, 1))
    moved = max(float(np.ptp([record["Q"][i, i] for record in late])) for i in range(len(late[0]["Q"])))
    still = f"the overlaps stand still (to {moved:.1g} over the last {len(late) - 1} steps), but "
    seen = f"one step still changes the estimate by {last:.1g} of itself (tol {tol:.1g})"
    seen = still + seen if moved < _STILL else seen
    if len(changes) > 2 and shrinks < _SHRINKS and max(changes) < _SETTLING:
        more = math.ceil(math.log(tol / last) / math.log(shrinks)) if last > tol else 1
        return f"{seen}: it shrinks by {100 * (1 - shrinks):.2g}% a step; some {more} more steps, or a larger tol, do"
    if len(changes) < _LATE:
        return f"{seen}: so few steps tell nothing yet, make more"
    remedy = "more damping, or more data" if damping else "damping of 0.3 to 0.7 settles it"
    return f"{seen}: it does not shrink steadily, for on few data the steps go on oscillating; {remedy}"


def _relative(change: np.floating[Any], *scales: np.floating[Any]) -> float:
    scale = max(scales)
    return float(change / scale) if scale > 0 else 0.0


def _start(
    initial: np.ndarray | float | None,
    lam: float,
    S: np.ndarray | None,
    model: SampleModel,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> State:
    prior = model.prior
    P, D = prior.rows, prior.row_dimension(shape[2])
    g = np.zeros((shape[0], P, model.tokens))
    if initial is None and S is not None and lam > 0:
        return State(*prior.denoise(np.zeros((P, P)), math.sqrt(lam) * S, lam), g, prior)
    if initial is None:
        initial = 1 / math.sqrt(D)
    allowed = "a standard deviation > 0, or an array (P, D)"
    given = real_array("initial", initial, allowed, "leave it out")
    if given.ndim == 0:
        strength = float(given)
        if not (math.isfinite(strength) and strength > 0):
            raise InputError("initial", initial, allowed, "leave it out")
        return State(prior.start(shape[2], strength, rng), prior.nothing_known(), g, prior)
    W_hat = check_array("initial", initial, (P, D))
    Q = overlap(prior, W_hat)
    if np.linalg.eigvalsh(Q)[-1] >= 1:
        raise InputError(
            "initial",
            f"rows with W_hat W_hat^T / D = {np.round(Q, 4).tolist()} in units of the prior",
            "a posterior mean: W_hat W_hat^T / D below the identity",
            "scale it down, for instance pass 0.9 * W_hat",
        )
    return State(W_hat, prior.law(Q).V, g, prior)


def _describe(initial: np.ndarray | float | None, lam: float) -> str | float:
    if initial is None:
        return "side information" if lam > 0 else "random"
    return float(np.asarray(initial)) if np.ndim(initial) == 0 else "given"


def _check_options(max_steps: int, damping: float, tol: float, rtol: float, A: str) -> None:
    check_count("max_steps", max_steps, 1, "give the largest number of steps")
    check_damping(damping)
    for name, value in (("tol", tol), ("rtol", rtol)):
        if not 0 < check_number(name, value, f"0 < {name} < 1", "leave it out for the default") < 1:
            raise InputError(name, value, f"0 < {name} < 1", "leave it out for the default")
    if A not in ("outer", "hessian"):
        raise InputError("A", A, "'outer' or 'hessian'", "leave it out for 'hessian'")


def _check_side_information(
    given: tuple[float, np.ndarray] | None, shape: tuple[int, int]
) -> tuple[float, np.ndarray | None]:
    if given is None:
        return 0.0, None
    if not (isinstance(given, (tuple, list)) and len(given) == 2):
        raise InputError("side_information", type(given), "a pair (lam, S)", "pass (lam, S), S of the shape of W")
    lam, S = given
    strength = check_number("side_information", lam, "a finite strength lam >= 0", "pass (lam, S)", least=0.0)
    return strength, check_array("side_information", S, shape)
