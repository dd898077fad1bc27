"""GAMP on finite data follows state evolution, step by step, in every family of models.

Both start at the overlap q I: GAMP from a posterior mean with this overlap, state evolution from the matrix itself.
Data are drawn at two dimensions D, with truths of exact norm, and a handful of undamped steps is made.  What is known
of the deviations (64 runs for each family and D, 5 steps): the mean of the runs stays within 0.5 / sqrt(D) of state
evolution, entry by entry of the overlap, and a single run spreads by at most 1.7 / sqrt(D).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from cases import KINDS
from oracles.solvable import Ridge, posterior_start

from smisym import SMI, Architecture, Attention, InputError, OverlapMap, gamp, generate
from smisym import compile as compile_model
from smisym.finite.alignment import same_slice
from smisym.model.compiled import Model
from smisym.prior import SlicedRows

START, STEPS, DIMS = 0.3, 4, (150, 600)
BIAS, SPREAD = 0.5, 1.7  # as above, times sqrt(D)
POSITION = ((0.5, -0.3), (0.2, 0.0))


@dataclass(frozen=True)
class Family:
    """A member of a family, the samples per dimension, how many runs at each D, and points of the overlap map.

    dims: the two D.  rtol: of the channel, sample by sample; None: GAMP's own.
    """

    declared: Architecture | SMI
    alpha: float
    runs: int = 32
    points: int = 8192
    dims: tuple[int, int] = DIMS
    rtol: float | None = None


FAMILIES = {
    "tied, rank two": Family(Architecture(3, (Attention(rank=2),)), 0.4, runs=16),
    "untied, rank one": Family(Architecture(3, (Attention(tied=False),)), 0.5, runs=16),
    "untied, rank one, two tokens": Family(Architecture(2, (Attention(tied=False),)), 0.8, runs=8),
    "heads that share the tokens": Family(Architecture(2, (Attention(heads=2),)), 0.6),
    "heads that split the tokens": Family(Architecture(2, (Attention(heads=2),), head_layout="split"), 0.3),
    "sequence output": Family(Architecture(2, (Attention(),), output="sequence"), 0.6),
    "scores of position": Family(Architecture(2, (Attention(position=POSITION),)), 0.6),
    "noise": Family(Architecture(2, (Attention(),), noise=0.05), 1.2, runs=12, points=2048),
    "noise and scores of position": Family(
        Architecture(2, (Attention(position=POSITION),), noise=0.05), 1.2, runs=12, points=2048
    ),
    "expressions": Family(SMI("z1*z2", 2), 2.0, runs=8),
    "causal mask": Family(Architecture(2, (Attention(mask="causal"),)), 1.0, runs=16),
    "many layers": Family(Architecture(2, (*[Attention(readout=0.1)] * 4, Attention()), limit="ode"), 0.6),
    "committee through its sum": Family(
        Architecture(2, (*[Attention(readout=1 / 6)] * 6, Attention()), limit="first_order", statistic="gaussian"),
        1.0,
        runs=6,
        points=2048,
    ),
    "sequence output of two layers": Family(
        Architecture(4, (Attention(), Attention()), output="sequence"), 0.2, runs=6, points=1024
    ),
    "hardmax": Family(Architecture(2, (Attention(activation="hardmax"),)), 2.0, runs=4, points=512),
    "linear scores": Family(Architecture(2, (Attention(tied=False, activation="linear"),)), 0.5, runs=16),
    "activation of one's own": Family(Architecture(3, (Attention(activation="s/(1 + abs(s))"),)), 0.4, runs=8),
    "expressions on two tokens": Family(SMI("a[1]*a[2]", ("a",), tokens=2), 1.5, runs=8, points=2048),
    # Posteriors in four dimensions, of 5 and 20 milliseconds.
    "committee, layer by layer": Family(
        Architecture(2, (*[Attention(readout=0.1)] * 2, Attention()), limit="first_order"),
        1.0,
        runs=3,
        points=1024,
        dims=(100, 400),
        rtol=3e-2,
    ),
    "heads that are summed": Family(
        Architecture(2, (Attention(heads=2, readout=(1.0, 0.5)),), combine="sum", noise=0.3),
        1.0,
        runs=3,
        points=256,
        dims=(50, 200),
        rtol=3e-2,
    ),
}


# Posteriors in four dimensions without a lattice, 0.3 s each: minutes for a single run of a hundred samples.
TOO_SLOW = {"untied, rank above one"}
# Steps of other priors: tests/finite/test_gamp_extensive.py, tests/prior/test_untied.py.
ELSEWHERE = {"extensive rank", "untied, extensive rank"}


def test_every_family_has_a_member() -> None:
    """Every kind of declaration in cases.py but those that are named here."""
    without = {kind for kind, of in KINDS.items() if not any(of(f.declared) for f in FAMILIES.values())}
    assert without == TOO_SLOW | ELSEWHERE


def state_evolution_steps(model: Model, family: Family) -> np.ndarray:
    """Overlaps (STEPS + 1, P, P) of state evolution from START times I."""
    overlap_map, unit = OverlapMap(model, samples=family.points, workers=1), np.eye(model.fields)
    overlaps = [START * unit]
    for _ in range(STEPS):
        overlaps.append(unit - np.linalg.inv(unit + family.alpha * overlap_map(overlaps[-1])[0]))
    return np.array(overlaps)


def runs(model: Model, family: Family, dim: int) -> dict[str, np.ndarray]:
    """Overlaps (runs, STEPS + 1, P, P) of GAMP with the truth and with itself; state evolution predicts them alike."""
    found: dict[str, list[list[np.ndarray]]] = {"overlap": [], "Q": []}
    for seed in range(family.runs):
        rng = np.random.default_rng([seed, dim])
        data = generate(model, dim, family.alpha, rng, normalised=True)
        start = posterior_start(data.W, START, rng)
        history = gamp(model, data.X, data.y, W=data.W, initial=start, max_steps=STEPS, rtol=family.rtol).history
        for name, values in found.items():
            values.append([record[name] for record in history])
    return {name: np.array(values) for name, values in found.items()}


# Without noise, scores of position only move the chart; with noise they change the channel, at the price of two free
# dimensions.
SLOW = {
    "noise and scores of position", "committee through its sum", "sequence output of two layers", "hardmax",
    "committee, layer by layer", "heads that are summed",
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in FAMILIES])
def test_gamp_follows_state_evolution_step_by_step(name: str) -> None:
    family = FAMILIES[name]
    model = compile_model(family.declared)
    predicted = state_evolution_steps(model, family)
    # What is followed is a long way: the wrong number of samples, or a term left out, would lead elsewhere.
    assert np.abs(np.diag(predicted[-1] - predicted[0])).sum() > 0.2 * model.fields
    deviations = [{k: v - predicted for k, v in runs(model, family, dim).items()} for dim in family.dims]
    for kind in ("overlap", "Q"):
        sizes = []
        for dim, deviation in zip(family.dims, (d[kind] for d in deviations), strict=True):
            bound = (BIAS + 3 * SPREAD / math.sqrt(family.runs)) / math.sqrt(dim)
            assert np.abs(deviation.mean(axis=0)).max() < bound, (kind, dim, deviation.mean(axis=0), bound)
            sizes.append(math.sqrt(np.mean(deviation**2)))
        # 1 / sqrt(D) makes it a half; the ratio is known to 0.5 / sqrt(independent entries), for steps go together.
        assert sizes[1] / sizes[0] < 0.5 + 1.5 / math.sqrt(family.runs * model.fields), (kind, sizes)


def test_heads_that_split_the_tokens_have_twice_the_samples_and_no_overlap() -> None:
    family = FAMILIES["heads that split the tokens"]
    split = compile_model(family.declared)
    rng = np.random.default_rng(0)
    data = generate(split, 40, family.alpha, rng)
    assert data.W.shape == (2, 20) and data.X.shape == (12, 2, 40)
    solution = gamp(split, data.X, data.y, W=data.W, initial=posterior_start(data.W, START, rng), max_steps=3)
    value = solution.value
    for matrix in (value.overlap, value.Q, value.C_hat):
        assert matrix[0, 1] == matrix[1, 0] == 0 and matrix[0, 0] > 0
    shared = compile_model(Architecture(2, (Attention(heads=2),)))
    same = Family(shared.architecture, 2 * family.alpha)
    predicted = state_evolution_steps(split, family)
    np.testing.assert_allclose(predicted, state_evolution_steps(shared, same), atol=1e-12)


def test_one_head_on_its_slice_is_gamp_on_the_slice_alone() -> None:
    """Heads that share nothing: each row follows the iteration of a single head on D/2 dimensions, to rounding."""
    split = compile_model(FAMILIES["heads that split the tokens"].declared)
    single = compile_model(Architecture(2, (Attention(),)))
    rng = np.random.default_rng(1)
    data = generate(split, 60, 0.5, rng)
    start = posterior_start(data.W, START, rng)
    both = gamp(split, data.X, data.y, initial=start, max_steps=5).value
    for head in range(2):
        part = np.ascontiguousarray(data.X[:, :, 30 * head : 30 * (head + 1)])
        one = gamp(single, part, data.y.y[:, head], initial=start[head : head + 1], max_steps=5).value
        np.testing.assert_allclose(both.W_hat[head], one.W_hat[0], atol=1e-9)
        np.testing.assert_allclose(both.C_hat[head, head], one.C_hat[0, 0], atol=1e-9)


def test_slices_that_the_output_mixes_give_the_posterior_of_linear_regression() -> None:
    """y = M Z + noise with rows of Z on two slices: mean and covariance of the weights are known in closed form."""
    slices, noise, own, tokens = (0, 0, 1), 0.5, 150, 2
    M = np.array([[1.0, 0.5, 0.9], [-0.3, 0.8, -0.6]])
    model = Ridge(M, tokens=tokens, noise=noise)
    model.prior = SlicedRows(slices)
    data = generate(model, 2 * own, 1.0, np.random.default_rng(0))
    value = gamp(model, data.X, data.y, tol=1e-11, max_steps=500).value
    parts = [data.X[:, :, s * own : (s + 1) * own] for s in slices]
    design = np.einsum("kp,pnti->ntkpi", M, parts).reshape(-1, 3 * own) / math.sqrt(own)
    cov = np.linalg.inv(design.T @ design / noise + np.eye(3 * own))
    mean = cov @ design.T @ data.y.transpose(0, 2, 1).ravel() / noise
    np.testing.assert_allclose(value.W_hat, mean.reshape(3, own), atol=1e-8)
    expected = np.einsum("piqi->pq", cov.reshape(3, own, 3, own)) / own * same_slice(slices)
    np.testing.assert_allclose(value.C_hat, expected, atol=0.01)
    assert (value.C_hat[2, :2] == 0).all() and (value.Q[2, :2] == 0).all()


def test_slices_that_do_not_divide_the_dimension_are_refused_with_the_fix() -> None:
    model = compile_model(FAMILIES["heads that split the tokens"].declared)
    rng = np.random.default_rng(0)
    data = generate(model, 10, 1.0, rng)
    with pytest.raises(InputError, match=r"(?s)multiple of 2.*use D = 10, or shared heads"):
        generate(model, 11, 1.0, rng)
    with pytest.raises(InputError, match=r"(?s)multiple of 2.*use D = 8, or shared heads"):
        gamp(model, data.X[:, :, :9], data.y)
