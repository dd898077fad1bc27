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
from scipy import linalg

from smisym.alignment import align, same_slice
from smisym.edge import check_count, check_model, check_number, check_seed, real_array
from smisym.errors import InputError
from smisym.samples import (
    LinkSymmetry,
    Outputs,
    SampleModel,
    back_project,
    check_array,
    check_data,
    flatten,
    project,
    slice_dimension,
)
from smisym.solution import Result, Solution, short

RTOL = 1e-3  # of one sample's mean, in posterior standard deviations
PERFECT = 1e-13  # posterior variance below which W_hat holds W to the rounding of the data
COLLAPSED = 1e-26  # posterior variance that no arithmetic on the data can support
BLOW_UP = 100.0  # mean square of the entries of W_hat; that of W is 1
OVERCONFIDENT = 100.0  # ratio of squared errors to what C_hat allows, beyond any fluctuation
HOPELESS = 1e6  # the same beyond which no step brings C_hat back: it shrinks on, and posteriors get dearer with it
SLACK = 100.0  # true error over the change of one step, at most, where convergence is believed

_LATE = 10  # steps that tell how a run that stopped early was going
_SHRINKS = 0.98  # factor of the change from step to step above which more steps are no remedy
_SETTLING = 0.1  # change of a step below which it is the approach to a fixed point that is seen
_STILL = 1e-3  # movement of overlaps that no figure shows

_STREAM = (0x67A,)  # spawn key of the random start

PERFECT_RECOVERY = "perfect recovery to rounding"


@dataclass(frozen=True)
class Gamp:
    """Where GAMP stopped.

    W_hat
        (P, D), the estimate: the posterior mean of W, in the gauge (signs, exchanges, rotations) in which it was found;
        (P, D/H) where heads split the embedding.
    C_hat
        (P, P), the posterior covariance of one column of W.
    Q
        (P, P), ``W_hat W_hat^T / D``, 0 between rows on different slices of the embedding.
    overlap
        (P, P), ``W_hat W^T / D`` after the map of rows of W_hat, among those that the output cannot see, that makes
        its trace largest (:func:`smisym.alignment.align`); None without W.
    steps
        How many steps were made.
    reason
        Why it stopped, in words.
    """

    W_hat: np.ndarray
    C_hat: np.ndarray
    Q: np.ndarray
    overlap: np.ndarray | None
    steps: int
    reason: str

    def __repr__(self) -> str:
        """The overlaps, and why it stopped; the arrays are attributes."""
        name, matrix = ("Q", self.Q) if self.overlap is None else ("overlap", self.overlap)
        rows, dim = self.W_hat.shape
        return f"<Gamp: W_hat ({rows}, {dim}), {name} {short(np.diag(matrix))} after {self.steps} steps; {self.reason}>"


def gamp(
    model: SampleModel,
    X: np.ndarray,
    y: np.ndarray | Outputs,
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

    Raises InputError for arrays of wrong shape or unequal length, values that are not finite, D < 2 or not a multiple
    of the number of slices, and bad options.
    Source: arXiv 2502.00901, appendix B.
    """
    check_model(model)
    X, y, W = check_data(model, X, y, W)
    P, D = model.fields, slice_dimension(model, X.shape[2])
    rtol = max(RTOL, model.channel.default_rtol()) if rtol is None else rtol
    _check_options(max_steps, damping, tol, rtol, A)
    lam, S = _check_side_information(side_information, (P, D))
    # A stream of its own: with the bare seed, a user who drew the data from the same seed would start at the truth.
    own = seed if isinstance(seed, np.random.Generator) else np.random.SeedSequence(check_seed(seed), spawn_key=_STREAM)
    rng = np.random.default_rng(own)
    start = _start(initial, lam, S, D, same_slice(model.row_slices), X.shape[:2], rng)
    step = _Step(model, flatten(X), y, damping, lam, S, rtol, A)
    settings = {
        "samples": X.shape[0], "dim": X.shape[2], "alpha": X.shape[0] / X.shape[2], "max_steps": max_steps,
        "damping": damping,
        "tol": tol, "rtol": rtol, "A": A, "side_information": lam, "initial": _describe(initial, lam),
        "seed": seed if isinstance(seed, int) else "generator",
    }  # fmt: skip
    judge = _Judge(model.symmetry, model.row_slices, W, start, tol, damping)
    return _iterate(step, start, judge, max_steps, callback, settings)


@dataclass(frozen=True)
class _State:
    """W_hat (P, D), C_hat (P, P), g (N, P, T), same (P, P), 1 between rows on one slice and 0 between others; then
    what was seen in the step that made it.

    surprise, hidden_error: see :func:`_surprise`.  channel_error, channel: the channel's error and result.
    """

    W_hat: np.ndarray
    C_hat: np.ndarray
    g: np.ndarray
    same: np.ndarray
    surprise: float | None = None
    hidden_error: float = 0.0
    channel_error: float | None = None
    channel: Result = Result.SUCCESS

    @property
    def Q(self) -> np.ndarray:
        return self.same * (self.W_hat @ self.W_hat.T / self.W_hat.shape[1])


_REMEDY = " (add damping, take more data, check that the data follow the model)"


class _Diverged(Exception):
    """The step has no next state; the argument says why."""


@dataclass(frozen=True)
class _Step:
    """One GAMP step, state to state."""

    model: SampleModel
    X: np.ndarray  # (N T, D): every product with the data is one matrix product
    y: Any
    damping: float
    lam: float
    S: np.ndarray | None
    rtol: float
    A: str

    def __call__(self, state: _State) -> _State:
        V, D = state.C_hat, state.W_hat.shape[1]
        slices = self.model.row_slices
        omega = project(state.W_hat, self.X, self.model.tokens, slices) - V @ state.g
        moments = self.model.channel.moments(self.y, omega, V, cov=self.A == "hessian", rtol=self.rtol)
        g = moments.g
        if not np.isfinite(g).all():
            raise _Diverged("the channel's means are not finite")
        # What couples slices vanishes as D grows, and rows on different slices have nothing to exchange.
        outer = state.same * _outer(g, D)
        A = outer if self.A == "outer" else state.same * _hessian(moments.dg, D)
        b = back_project(g, self.X, slices) + A @ state.W_hat
        if self.S is not None:
            b += math.sqrt(self.lam) * self.S
        C_hat = _inverse(A + (1.0 + self.lam) * np.eye(len(A)))
        keep = self.damping
        new = _State(
            (1 - keep) * (C_hat @ b) + keep * state.W_hat,
            (1 - keep) * C_hat + keep * state.C_hat,
            (1 - keep) * g + keep * state.g,
            state.same,
            *_surprise(outer, V, C_hat, len(self.X) / D),
            float(np.sqrt(np.sum(np.square(moments.error)) / (len(A) * D))),
            moments.result,
        )
        if not np.isfinite(new.W_hat).all():
            raise _Diverged("the estimate is not finite")
        if np.trace(new.Q) > BLOW_UP * len(A):
            raise _Diverged(f"the estimate blew up: its mean square exceeds {BLOW_UP:g}, that of the weights is 1")
        return new


@dataclass(frozen=True)
class _Judge:
    """What is recorded of each state, and when to stop."""

    symmetry: LinkSymmetry
    row_slices: tuple[int, ...]
    W: np.ndarray | None
    start: _State
    tol: float
    damping: float

    def record(self, number: int, old: _State | None, new: _State) -> dict[str, Any]:
        overlap, cosines = (None, None) if self.W is None else align(self.symmetry, new.W_hat, self.W, self.row_slices)
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

    def _change(self, old: _State, new: _State) -> float:
        # As if undamped, or strong damping would pass for convergence.  Relative to the start where that is larger: an
        # estimate that decays to zero (nothing to be learned) converges, while one that slowly grows out of a small
        # start does not pass for converged.
        taken = 1 - self.damping
        pairs = ((old.W_hat, new.W_hat, self.start.W_hat), (old.Q, new.Q, self.start.Q))
        return max(_relative(np.linalg.norm(b - a) / taken, np.linalg.norm(b), np.linalg.norm(s)) for a, b, s in pairs)

    def reason_to_stop(self, state: _State, change: float) -> str | None:
        """Why the iteration is done, or None.  Raises _Diverged when C_hat left the range of the arithmetic."""
        variances = np.linalg.eigvalsh(state.C_hat)
        if variances[-1] < PERFECT and state.hidden_error <= SLACK * math.sqrt(PERFECT):
            return PERFECT_RECOVERY
        if variances[0] < COLLAPSED or (state.surprise is not None and state.surprise > HOPELESS):
            raise _Diverged("C_hat collapsed: the errors far exceed it" + _REMEDY)
        if change <= self.tol and state.hidden_error <= SLACK * self.tol:
            return "converged"
        return None


def _iterate(
    step: _Step,
    state: _State,
    judge: _Judge,
    max_steps: int,
    callback: Callable[[dict[str, Any]], object] | None,
    settings: dict[str, Any],
) -> Solution:
    latest = (state, judge.record(0, None, state))
    history = [latest[1]]
    result, reason = Result.MAX_STEPS, f"made all {max_steps} steps"
    try:
        if callback is not None:
            callback(history[0])
        for number in range(1, max_steps + 1):
            new = step(latest[0])
            # One assignment: an interrupt finds a state with its own record, whichever it finds.
            latest = (new, judge.record(number, latest[0], new))
            history.append(latest[1])
            if callback is not None:
                callback(latest[1])
            stop = judge.reason_to_stop(new, latest[1]["change"])
            if stop is not None:
                result, reason = new.channel, stop
                break
    except _Diverged as error:
        result, reason = Result.DIVERGED, str(error)
    except KeyboardInterrupt:
        result, reason = Result.INTERRUPTED, "interrupted"
    state, last = latest
    if result is Result.MAX_STEPS:
        hidden = "the errors far exceed C_hat" + _REMEDY if state.hidden_error > 0 else None
        reason += f"; {hidden or _what_blocks(history, judge.tol, judge.damping)}"
    if history[-1] is not last:
        history.append(last)
    value = Gamp(state.W_hat, state.C_hat, state.Q, last["overlap"], last["step"], reason)
    return Solution(value, result, history=tuple(history), settings=settings)


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


def _surprise(outer: np.ndarray, V: np.ndarray, C_hat: np.ndarray, tokens_per_dim: float) -> tuple[float, float]:
    """How far the fields are from where V has them: (largest squared ratio, error that the next C_hat hides).

    ``E = V outer V / (alpha T)`` is the mean of (m - omega)(m - omega)^T per token, which V bounds from above whenever
    V is the covariance of omega's error.  The second number is the root mean square error, by E, in the directions, if
    any, in which E exceeds the next C_hat beyond doubt.
    """
    now, after = (np.tril(_cholesky(matrix)[0]) for matrix in (V, C_hat))
    largest = np.linalg.eigvalsh(now.T @ outer @ now / tokens_per_dim)[-1]
    E = V @ outer @ V / tokens_per_dim
    half = linalg.solve_triangular(after, E, lower=True)
    ratios, directions = np.linalg.eigh(linalg.solve_triangular(after, half.T, lower=True))
    errors = np.sqrt(np.maximum(ratios, 0.0)) * np.linalg.norm(after @ directions, axis=0)
    return float(largest), float(np.max(errors, where=ratios > OVERCONFIDENT, initial=0.0))


def _outer(g: np.ndarray, D: int) -> np.ndarray:
    rows = g.transpose(1, 0, 2).reshape(g.shape[1], -1)
    return rows @ rows.T / D


def _hessian(dg: np.ndarray, D: int) -> np.ndarray:
    """Minus the derivative of g token by token, summed over tokens and samples, over D; dg (N, P, T, P, T).

    Positive semidefinite in the limit; the heavy tails of few samples can make it negative in some direction, and the
    nearest matrix that is not takes its place.
    """
    total = np.einsum("nptqt->pq", dg)
    if not np.isfinite(total).all():
        raise _Diverged("the channel's derivative is not finite")
    values, vectors = np.linalg.eigh(-(total + total.T) / (2 * D))
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, symmetric to the last bit."""
    inverse = linalg.cho_solve(_cholesky(matrix), np.eye(len(matrix)))
    return (inverse + inverse.T) / 2


def _cholesky(matrix: np.ndarray) -> tuple[np.ndarray, bool]:
    if not np.isfinite(matrix).all():
        raise _Diverged("the covariance is not finite")
    try:
        return linalg.cho_factor(matrix, lower=True)
    except linalg.LinAlgError:
        raise _Diverged("the covariance is not positive definite") from None


def _relative(change: np.floating[Any], *scales: np.floating[Any]) -> float:
    scale = max(scales)
    return float(change / scale) if scale > 0 else 0.0


def _start(
    initial: np.ndarray | float | None,
    lam: float,
    S: np.ndarray | None,
    D: int,
    same: np.ndarray,
    samples_tokens: tuple[int, ...],
    rng: np.random.Generator,
) -> _State:
    P = len(same)
    g = np.zeros((samples_tokens[0], P, samples_tokens[1]))
    if initial is None and S is not None and lam > 0:
        return _State(math.sqrt(lam) / (1 + lam) * S, np.eye(P) / (1 + lam), g, same)
    if initial is None:
        initial = 1 / math.sqrt(D)
    allowed = "a standard deviation > 0, or an array (P, D)"
    given = real_array("initial", initial, allowed, "leave it out")
    if given.ndim == 0:
        strength = float(given)
        if not (math.isfinite(strength) and strength > 0):
            raise InputError("initial", initial, allowed, "leave it out")
        return _State(strength * rng.standard_normal((P, D)), np.eye(P), g, same)
    W_hat = check_array("initial", initial, (P, D))
    C_hat = np.eye(P) - same * (W_hat @ W_hat.T / D)
    if np.linalg.eigvalsh(C_hat)[0] <= 0:
        raise InputError(
            "initial",
            f"rows with W_hat W_hat^T / D = {np.round(np.eye(P) - C_hat, 4).tolist()}",
            "a posterior mean: W_hat W_hat^T / D below the identity",
            "scale it down, for instance pass 0.9 * W_hat",
        )
    return _State(W_hat, C_hat, g, same)


def _describe(initial: np.ndarray | float | None, lam: float) -> str | float:
    if initial is None:
        return "side information" if lam > 0 else "random"
    return float(np.asarray(initial)) if np.ndim(initial) == 0 else "given"


def _check_options(max_steps: int, damping: float, tol: float, rtol: float, A: str) -> None:
    check_count("max_steps", max_steps, 1, "give the largest number of steps")
    fix = "0 is none; 0.5 keeps half of the old state"
    if not 0 <= check_number("damping", damping, "0 <= damping < 1", fix) < 1:
        raise InputError("damping", damping, "0 <= damping < 1", fix)
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
