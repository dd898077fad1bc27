"""Made-up Solutions of every kind, with every extreme, for tests of what shows, draws, tables and saves them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

import smisym
from smisym.base.solution import Result
from smisym.run.diagram import PhaseDiagram
from smisym.theory.branched import Branches, BranchLine, Phases
from smisym.training.trajectories import Trajectory

NAMES = ("layer 1", "layer 2")
SETTINGS = {"samples": 64, "scrambles": 4, "seed": 3, "rtol": 1e-2}


def point(alpha: float, q: Iterable[float] = (0.25, 0.75), result: Result = Result.SUCCESS) -> smisym.Solution:
    """A fixed point of two rows, with an infinite conjugate overlap and a potential that is not there."""
    Q = np.diag(np.array(list(q), dtype=float))
    error, left = np.abs(Q) / 50, np.full((2, 2), 1e-4)
    Q_hat = np.array([[math.inf, 0.0], [-0.0, 3.0]])
    found = smisym.FixedPoint(
        alpha, Q, error, Q_hat, np.array([[0.2, 0.7], [0.3, 0.8]]), "symmetry-broken", 0.0, np.array([True, False]),
        np.array([math.nan, -1.5]), NAMES,
    )  # fmt: skip
    checks = {"residual": left, "nishimori": {"z": 0.1, "p": 1.0, "holds": True}, "tries": ((64, 0.1), (128, 0.05))}
    history = ({"scramble": 0, "step": 0, "overlaps": [0.0, 0.1], "change": None},)
    return smisym.Solution(found, result, error, left, 3, history, {**SETTINGS, "start": found.start}, checks)


def curve() -> smisym.Curve:
    """Five points, of which the fourth is no success."""
    codes = [Result.SUCCESS] * 3 + [Result.NOISY, Result.SUCCESS]
    qs = [(0.0, 0.0), (0.0, 0.5), (0.3, 0.8), (0.6, 0.9), (1.0, 1.0)]
    return smisym.Curve(point(0.2 * n, q, code) for n, (q, code) in enumerate(zip(qs, codes, strict=True)))


def thresholds() -> smisym.Solution:
    """A weak threshold, and a direction that is hard."""
    eye = np.eye(2)
    found = smisym.Thresholds(
        [
            smisym.Threshold("weak", (2,), eye[1:], 0.1854779, 1.8e-6, np.zeros((2, 2)), names=("layer 2",)),
            smisym.Threshold("hard", (1,), eye[:1], math.inf, 0.0, np.diag([0.0, 0.9]), 4, ("layer 1",), 64),
        ],
        NAMES,
    )
    checks = {"growth": (1e-3,), "growth_error": (2e-3,)}
    return smisym.Solution(found, Result.SUCCESS, (1.8e-6, 0.0), None, 3, (), SETTINGS, checks)


def gamp(known: bool = True) -> smisym.Solution:
    """Three steps of GAMP on two rows, stopped before it converged."""
    rng = np.random.default_rng(0)
    steps = []
    for number in range(4):
        Q = np.diag([0.1 * number, 0.3 * number])
        steps.append(
            {
                "step": number, "overlap": Q if known else None, "cosines": np.diag(Q) if known else None,
                "Q": Q + 0.01,
                "C_hat": np.eye(2) - Q, "change": None if number == 0 else 0.1, "surprise": None, "channel_error": 1e-4,
                "channel": "success",
            }
        )  # fmt: skip
    last = steps[-1]
    value = smisym.Gamp(
        rng.standard_normal((2, 5)), last["C_hat"], last["Q"], last["overlap"], 3, "made all 3 steps", NAMES
    )
    return smisym.Solution(
        value, Result.MAX_STEPS, history=tuple(steps), settings={"samples": 8, "dim": 5, "alpha": 1.6, "seed": 0}
    )


def dynamics() -> smisym.Solution:
    """Theory and descent of two seeds, one of which diverged, on two rows."""
    rise = np.linspace(0.1, 0.9, 4)[None, :, None] * np.array([0.5, 1.0]) * np.array([1.0, 1.1])[:, None, None]
    gone = np.where(np.arange(4) < 2, 1.0, np.nan)[:, None] * rise[1]
    nothing = np.full((2, 4), np.nan)
    theory = Trajectory(
        "state evolution", "iteration", rise, np.full((4, 2), 1e-3), nothing, ("success", "success"), ("", "")
    )
    codes, reasons = ("success", "diverged"), ("", "at epoch 2: the weights blew up")
    sgd = Trajectory("sgd", "epoch", np.stack([rise[0], gone]), np.zeros((4, 2)), rise[..., 0], codes, reasons)
    settings = {"alpha": 2.0, "dim": 5, "samples": 10, "seeds": 2, "seed": 0}
    return smisym.Solution(smisym.Dynamics((theory, sgd), NAMES, (1, 2)), Result.DIVERGED, settings=settings)


def branches() -> smisym.Solution:
    """A branch that folds, stable before the fold, and one without a point."""
    q = np.array([0.9, 0.6, 0.4, 0.1])
    overlaps = q[:, None, None] * np.diag([1.0, 0.5])
    alphas, growth = np.array([0.9, 0.5, 0.4, 0.6]), np.array([0.5, 0.8, 0.95, 1.3])
    fold = BranchLine("informed", "nothing", alphas, alphas / 100, overlaps, growth, (2,))
    empty = BranchLine("weak", "lost", np.empty(0), np.empty(0), np.empty((0, 2, 2)), np.empty(0))
    return smisym.Solution(Branches((fold, empty), NAMES), Result.SUCCESS, settings=SETTINGS)


def phases() -> smisym.Solution:
    """The fold of that branch, and where the optimum comes to be on it."""
    found = [
        smisym.Threshold(kind, (1, 2), np.eye(2), alpha, 1e-3, np.diag([0.4, 0.2]), names=NAMES)
        for kind, alpha in (("spinodal", 0.4), ("information", 0.5))
    ]
    value = Phases(found, NAMES, branches().value)
    return smisym.Solution(value, Result.SUCCESS, (1e-3, 1e-3), None, 3, (), SETTINGS)


def diagram(seconds: Iterable[float] = ()) -> PhaseDiagram:
    """Four values of the noise, at the last of which is no success: a threshold that moves, two folds that end, and
    what is hard everywhere.  seconds: values of a second parameter, with which alpha grows."""
    names = ("noise", "skip") if (skips := list(seconds)) else ("noise",)
    records = []
    for skip in skips or [0.0]:
        for number, noise in enumerate((0.1, 0.2, 0.4, 0.8)):
            folds = (0.5, 1.5) if number < 2 else ()
            alphas = [("weak", (noise + 0.1) * (1 + skip)), *(("spinodal", a + noise) for a in folds), ("hard", None)]
            found = [
                {"kind": kind, "layers": [1], "names": ["layer 1"], "alpha": alpha, "error": alpha and 0.01,
                 "Q": [[0.25]], "subspace": [[1.0]], "order": None}
                for kind, alpha in alphas
            ]  # fmt: skip
            code = (Result.SUCCESS if number < 3 else Result.NOISY).value
            at = {"noise": noise, "skip": skip} if skips else {"noise": noise}
            records.append({"at": at, "labels": ["layer 1"], "thresholds": found, "unseen": 0.05, "result": code})
    return PhaseDiagram(records, names)


def number() -> smisym.Solution:
    """A free entropy without bound."""
    return smisym.Solution(-math.inf, Result.SUCCESS, settings={"alpha": 0.5})


def array() -> smisym.Solution:
    return smisym.Solution(
        np.arange(6.0).reshape(2, 3), Result.SUCCESS, np.full((2, 3), 0.1), None, 7, settings={"samples": 4, "seed": 1}
    )


ALL = {
    "fixed point": lambda: point(0.5), "failed": lambda: point(0.5, result=Result.DIVERGED), "curve": curve,
    "empty curve": smisym.Curve, "thresholds": thresholds, "gamp": gamp, "gamp without the truth": lambda: gamp(False),
    "dynamics": dynamics, "branches": branches, "phases": phases, "diagram": diagram,
    "diagram of two": lambda: diagram((0.0, 1.0)),
    "number": number, "array": array, "several": lambda: {"bayes": number(), "plug_in": array()},
}  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Of the same types, shapes and bits, not-a-number included, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, smisym.Curve):
        return same(list(a), list(b)) and same(a.beside, b.beside)
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b)) and getattr(a, "labels", 0) == getattr(b, "labels", 0)
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes() or (a != a and b != b)
    return bool(a == b)
