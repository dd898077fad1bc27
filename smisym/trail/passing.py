"""GAMP from belief propagation: Gaussian messages, and the Onsager term that is left when each loses its index."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.finite.samples import flatten, generate
from smisym.model.compiled import Model
from smisym.prior import remaining
from smisym.trail import notation
from smisym.trail.claims import Claim, Part, runs_too_much
from smisym.trail.samples import by_chance, map_of
from smisym.verify.chance import Verdict, means_vanish
from smisym.verify.properties import Subject, Tried, left_out

# Overlap of the start, dimension of a slice, runs, and what 1/D may leave of a mean, in units of 1/D.
_START, _DIM, _RUNS, _FINITE = 0.3, 48, 16, 6.0
# alpha is where one step makes Q_hat = I on average, between these.
_LEAST, _MOST = 0.5, 1.0

_OF_THE_PRIOR = Formula(
    r"\hat W",
    r"\mathbb{E}\left[W \,\middle|\, b / A\right], \qquad \hat C = F(1 / A)",
    "what the prior makes of its weights seen in noise of variance 1 / A, in the step on it",
)
_NOT_GAUSSIAN = "the weights are one matrix, and what a run of finite size is off by is not of order 1/D"


def _seen(model: Model) -> tuple[str, str]:
    """What a column of the fields is the product of W with, and its plural."""
    return ("sensing matrix", "sensing matrices") if model.prior.entries == "M" else ("token", "tokens")


def _relaxed(subject: Subject) -> Step:
    model = subject.model
    T, D = model.tokens, model.prior.entries
    text = (
        "The factor graph has the columns $W_i$ of $W$ as variables "
        "and the samples $\\mu$ as factors; a sample is seen "
        f"through its {counted(T, *_seen(model))}, $x_{{\\mu i}}$ in $\\mathbb{{R}}^{{{T}}}$ "
        "for each column. Each field is a sum of many small independent terms, "
        "so that, given the messages of all columns but one, it "
        "is Gaussian (central limit theorem), and a message back "
        "needs its first two moments only, expanded to second "
        f"order in $W_i / \\sqrt{{{D}}}$. {_seen(model)[1].capitalize()} are independent: their "
        "cross terms $x_{ti} x_{si}$ average out, and one $V$ serves them all."
        + (
            f" Rows see the ${D}$ columns of their own slice, and rows of two slices share none."
            if D.startswith("D/")
            else ""
        )
    )
    formulas = (
        Formula(
            r"\omega_{\mu \to i}",
            rf"\frac{{1}}{{\sqrt{{{D}}}}} \sum_{{j \ne i}} \hat W_{{j \to \mu}}\, x_{{\mu j}}^{{\top}}, \qquad "
            rf"V_{{\mu \to i}} = \frac{{1}}{{{D}}} \sum_{{j \ne i}} \hat C_{{j \to \mu}}",
        ),
        Formula(
            r"b_{\mu \to i}",
            rf"\frac{{1}}{{\sqrt{{{D}}}}} \sum_{{t=1}}^{{{T}}} g_{{\mu t}}\, x_{{\mu t i}}, \qquad "
            rf"A_{{\mu \to i}} = -\frac{{1}}{{{D}}} \sum_{{t=1}}^{{{T}}} "
            rf"\frac{{\partial g_{{\mu t}}}}{{\partial \omega_t}}",
            r"$g_\mu = g_{\mathrm{out}}(y_\mu, \omega_{\mu \to i}, V_{\mu \to i})$",
        ),
        Formula(
            r"\hat C_{i \to \mu}",
            r"\Big(I + \sum_{\nu \ne \mu} A_{\nu \to i}\Big)^{-1}, \qquad "
            r"\hat W_{i \to \mu} = \hat C_{i \to \mu} \sum_{\nu \ne \mu} b_{\nu \to i}",
        )
        if notation.gaussian(model)
        else _OF_THE_PRIOR,
    )
    return Step(
        "gamp",
        "Relaxed belief propagation",
        text,
        formulas,
        source="arXiv 2502.00901, appendix D, eqs 76-85; arXiv 1010.5141",
    )


def _gamp(subject: Subject) -> Step:
    model = subject.model
    T, D = model.tokens, model.prior.entries
    text = (
        f"Messages depend on their target by terms of order $1/\\sqrt{{{D}}}$. "
        "In $\\omega$ these add up: $\\hat W_{j \\to \\mu}$ lacks "
        "what sample $\\mu$ itself told, $\\hat C b_{\\mu \\to j}$, and "
        "the sum of $x_{\\mu j} x_{\\mu j}^{\\top} / "
        f"{notation.in_a_product(D)}$ over columns is "
        f"the identity on {_seen(model)[1]}. What is taken away is $V \\tilde g_\\mu$, with $\\tilde g$ of "
        "the step before, the Onsager term. It makes $\\omega_\\mu$ "
        "a cavity field: it knows $y_\\mu$ through the true field alone. "
        "That is what is tried, on data: after a first step from a start "
        "whose noise knows nothing of the data, $\\omega$ is $Q Z$ on "
        "average at any $\\tilde g$ of that step. Without the term it would be "
        "$Q Z + V \\tilde g$. "
        "In $b$ they add up as well: $g$ at the field of all columns differs from that without column $i$ by "
        "$\\partial g / \\partial \\omega\\, \\hat W_i\\, x_{\\mu i}$, and so $\\sum_\\mu b_{\\mu \\to i}$ "
        "by $A \\hat W_i$, which is added."
    )
    formulas = (
        Formula(
            r"\omega_\mu",
            rf"\frac{{\hat W X_\mu^{{\top}}}}{{\sqrt{{{D}}}}} "
            rf"- V \tilde g_\mu, \qquad V = \hat C",
        ),
        Formula(r"g_\mu", r"g_{\mathrm{out}}(y_\mu, \omega_\mu, V)"),
        Formula(
            "A",
            rf"-\frac{{1}}{{{D}}} \sum_\mu \sum_{{t=1}}^{{{T}}} "
            rf"\frac{{\partial g_{{\mu t}}}}{{\partial \omega_{{\mu t}}}}",
        ),
        Formula(
            r"\hat C",
            r"(I + A)^{-1}, \qquad \hat W = \hat C \Big(" + rf"\frac{{1}}{{\sqrt{{{D}}}}}" + r"\sum_\mu g_\mu "
            r"X_\mu + A \hat W\Big)",
        )
        if notation.gaussian(model)
        else _OF_THE_PRIOR,
        Formula(
            r"\mathbb{E} \sum_t \omega_t\, \tilde g_t^{\top}",
            r"Q\; \mathbb{E} \sum_t z_t\, \tilde g_t^{\top}",
            r"what the Onsager term sees to; without it $V\, \mathbb{E} \sum_t \tilde g_t \tilde g_t^{\top}$ more",
        ),
    )
    return Step(
        "gamp",
        "GAMP and its Onsager term",
        text,
        formulas,
        source="arXiv 2502.00901, D.3, eqs 104-112, and algorithm 1; arXiv 1010.5141; arXiv 0907.3574",
    )


class Recording:
    """A channel that keeps what it was asked, and what g it gave."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.asked: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, y: Any, omega: np.ndarray, V: np.ndarray, **settings: Any) -> Any:
        found = self._channel.moments(y, omega, V, **settings)
        self.asked.append((omega, V, found.g))
        return found


@dataclass(frozen=True)
class Ran:
    """Two steps of one run: the mean of (omega - Q Z) g^T with the g of the step before, in units of V; that of g g^T,
    which is what the Onsager term adds to it; overlaps with the truth after each step; in invariant coordinates (k,)
    and (2, k)."""

    gap: np.ndarray
    size: float
    overlaps: np.ndarray


def _run(subject: Subject, dim: int, alpha: float, seed: int) -> Ran:
    model, rng = subject.model, np.random.default_rng(seed)
    data = generate(model, dim, alpha, rng, normalised=True)
    # About the mean of the law, which a start of strength zero is.
    noise, mean = (model.prior.start(dim, s, rng) for s in (math.sqrt(_START * (1 - _START)), 0.0))
    start = noise + _START * (data.W - mean)
    recording: Any = Recording(model.channel)
    heard = dataclasses.replace(model, channel=recording)
    how: dict[str, Any] = {"W": data.W, "initial": start, "max_steps": 2, "tol": 1e-12}
    found = subject.algorithm(heard, data.X, data.y, **how)
    Z = model.prior.project(data.W, flatten(data.X), data.X.shape[1])
    (_, _, old), (omega, V, _) = recording.asked[:2]
    gain = np.eye(len(V)) - V @ np.linalg.inv(model.prior.nothing_known())
    root = np.linalg.cholesky(V)
    g, rest = root.T @ old, np.linalg.solve(root, omega - gain @ Z)
    same = model.prior.together()
    gap = same * np.einsum("nat,nbt->ab", rest, g) / len(g)
    size = float(np.abs(same * np.einsum("nat,nbt->ab", g, g) / len(g)).max())
    along = [record["overlap"] for record in found.history if record["step"]][:2]
    both = [(np.asarray(M) + np.asarray(M).T) / 2 for M in along]
    coordinates = model.symmetry.coordinates
    return Ran(coordinates((gap + gap.T) / 2), size, np.array([coordinates(M) for M in both]))


def _runs(subject: Subject, stage: int, times: int) -> tuple[list[Ran], int, float] | None:
    """(runs, D, alpha), or None where nothing is learned."""
    made: tuple[list[Ran], int, float] | None = subject.once(f"runs {stage}", lambda: _made(subject, stage, times))
    return made


def _made(subject: Subject, stage: int, times: int) -> tuple[list[Ran], int, float] | None:
    model = subject.model
    first = map_of(subject).evaluate(_START * np.eye(model.fields))
    told = float(np.trace(np.mean([e.E for e in first], axis=0))) / model.fields
    if not told > 1e-6:
        return None
    alpha = float(np.clip(round(1 / told, 1), _LEAST, _MOST))
    dim, seed = _DIM * model.prior.multiplicity, subject.number("runs", stage) % 2**31
    return [_run(subject, dim, alpha, seed + r) for r in range(_RUNS * times)], _DIM, alpha


def _by_runs(
    subject: Subject, level: float, judged: Callable[[int, int, list[Ran], int, float], Verdict], unit: str, said: str
) -> Tried:
    """A test of runs on data; judged: (stage, times, runs, D, alpha) -> Verdict."""
    reason = "" if notation.gaussian(subject.model) else _NOT_GAUSSIAN
    reason = reason or runs_too_much(subject) or ("" if _runs(subject, 0, 1) else "at this start nothing is learned")
    if reason:
        return left_out(reason)

    def test(stage: int, times: int) -> Verdict:
        made = _runs(subject, stage, times)
        assert made is not None
        return judged(stage, times, *made)

    return by_chance(subject, level, test, unit, said)


def _onsager(subject: Subject, level: float) -> Tried:
    def judged(stage: int, times: int, runs: list[Ran], dim: int, alpha: float) -> Verdict:
        size = float(np.mean([run.size for run in runs]))
        return means_vanish(np.array([run.gap for run in runs]), _FINITE / dim * size)

    return _by_runs(subject, level, judged, f"runs at D = {_DIM} a slice", f"up to {_FINITE:g}/D of its size")


def _follows(subject: Subject, level: float) -> Tried:
    def judged(stage: int, times: int, runs: list[Ran], dim: int, alpha: float) -> Verdict:
        omap, one = map_of(subject, stage, times), np.eye(subject.model.fields)
        Q, expected = _START * one, []
        for _ in range(2):
            E = np.mean([e.E for e in omap.evaluate(Q)], axis=0)
            Q = remaining(np.linalg.inv(one + alpha * E))
            expected.append(subject.model.symmetry.coordinates(Q))
        gaps = np.array([run.overlaps - np.array(expected) for run in runs])
        return means_vanish(gaps.reshape(len(runs), -1), _FINITE / dim)

    return _by_runs(subject, level, judged, f"runs at D = {_DIM} a slice, two steps", f"up to {_FINITE:g}/D")


RELAXED = Part(_relaxed, ())
GAMP = Part(
    _gamp,
    (
        Claim(
            "given the true fields, $\\omega$ does not know the $\\tilde g$ of the step before",
            _onsager,
            posteriors=True,
        ),
        Claim("overlaps of GAMP follow state evolution, step by step", _follows, posteriors=True),
    ),
)
