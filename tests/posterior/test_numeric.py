"""Charts found numerically: roots against polynomials, moments against closed charts, finite sets against the truth."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import sympy as sp
from cases import FAMILIES, attention

import smisym
from smisym import SMI, Attention, InputError, Result
from smisym.integrate.roots import along_line, distinct, from_starts, jacobian, log_volume
from smisym.link.program import Assign, Program, RowSoftmax
from smisym.model.channel import Channel
from smisym.posterior.points import OnPoints
from smisym.posterior.slices import OnSlices, numeric_posterior
from smisym.posterior.surface import Surface

A = Attention


# ----------------------------------------------------------------------------------------------------------- roots


def test_a_scan_finds_every_root_of_polynomials() -> None:
    rng = np.random.default_rng(0)
    roots = np.sort(rng.uniform(-4, 4, (300, 5)), axis=1)
    roots[:40, 1] = roots[:40, 0] + 1e-3  # inside one cell of the scan

    def link(Z: np.ndarray) -> np.ndarray:
        return np.asarray(np.prod(Z[:, :1] - Z[:, 1:], axis=1, keepdims=True))

    Z = np.concatenate([np.zeros((300, 1)), roots], axis=1)
    found = along_line(link, np.zeros((300, 1)), Z, 0, np.zeros(300), np.ones(300), 8)
    assert not found.lost.any()
    # Three within one cell of the scan (about 1 % of these draws) are taken for one.
    assert (found.found.sum(axis=1) == 5).mean() > 0.98
    full = found.found[:, :5].all(axis=1)
    np.testing.assert_allclose(np.sort(found.values[full, :5, 0], axis=1), roots[full], atol=1e-6)
    # Nearest to the mean first: those are kept where there are more than slots.
    away = np.abs(found.values[full, :5, 0])
    assert (np.diff(away, axis=1) >= 0).all()


def test_a_scan_takes_no_jump_for_a_root_and_says_when_there_are_too_many() -> None:
    steps = along_line(
        lambda Z: np.asarray(np.sign(Z.real) + 0.1 * Z),
        np.zeros((1, 1)),
        np.zeros((1, 1)),
        0,
        np.zeros(1),
        np.ones(1),
        4,
    )
    assert not steps.found.any()
    waves = along_line(
        lambda Z: np.asarray(np.sin(3 * Z)), np.zeros((1, 1)), np.zeros((1, 1)), 0, np.zeros(1), np.ones(1), 4
    )
    assert waves.lost.all()
    assert waves.found.all()


def test_starts_find_the_intersections_of_two_conics() -> None:
    def link(Z: np.ndarray) -> np.ndarray:
        return np.stack([Z[:, 0] ** 2 + Z[:, 1] ** 2, Z[:, 0] * Z[:, 1]], axis=1)

    starts = np.random.default_rng(1).standard_normal((1, 64, 2))
    found = from_starts(link, np.array([[5.0, 2.0]]), np.zeros((1, 2)), np.arange(2), starts)
    points = {tuple(p) for p in found.values[0][found.found[0]].round(9)}
    assert points == {(1.0, 2.0), (2.0, 1.0), (-1.0, -2.0), (-2.0, -1.0)}
    assert found.hits[0].sum() >= 50
    value, J = jacobian(link, np.array([[1.0, 2.0]]), np.arange(2))
    np.testing.assert_allclose(value, [[5, 2]], rtol=1e-15)
    np.testing.assert_allclose(J, [[[2, 4], [2, 1]]], rtol=1e-15)
    np.testing.assert_allclose(log_volume(J), [np.log(6)], rtol=1e-14)


def test_equal_points_count_once() -> None:
    points = np.array([[[1.0], [1.0 + 1e-9], [2.0], [1.0]]])
    found = distinct(points, np.array([[True, True, True, False]]), 2)
    assert found.values[0, :, 0].tolist() == [1.0, 2.0]
    assert found.hits[0].tolist() == [2, 1]


# --------------------------------------------------------------------------------------- against the closed charts


def _draw(model: Any, n: int, seed: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    P, T = model.fields, model.tokens
    V = 0.4 * np.eye(P) + 0.05
    omega = np.sqrt(0.5) * rng.standard_normal((n, P, T))
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal((n, P, T))
    return model.observe(Z), omega, V, Z


CLOSED = {
    "abs": (FAMILIES["abs"].declared, OnPoints, 1e-2),
    "product": (FAMILIES["product"].declared, OnSlices, 1e-2),
    "triple-product": (FAMILIES["triple-product"].declared, OnSlices, 3e-2),
    "two-outputs": (FAMILIES["two-outputs"].declared, OnPoints, 1e-2),
    "heads": (attention(2, A(heads=2)), OnPoints, 1e-2),
    "causal": (attention(2, A(mask="causal")), OnSlices, 1e-2),
    "sequence-two": (FAMILIES["sequence-two-noiseless"].declared, OnSlices, 6e-2),
}


SLOW = {"sequence-two", "causal"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CLOSED])
def test_numeric_posteriors_are_those_of_the_closed_chart(name: str) -> None:
    """Moments within the error bars, and log-partitions up to what depends on y alone."""
    declared, kind, rtol = CLOSED[name]
    model = smisym.compile(declared)
    assert model.level_set is not None
    posterior = numeric_posterior(model.link, model.symmetry.signs)
    assert isinstance(posterior, kind)
    observed, omega, V, _ = _draw(model, 3 if rtol > 0.05 else 10, 3)
    closed = model.channel.moments(observed, omega, V, cov=True, rtol=min(rtol, 1e-2))
    numeric = Channel(model.link, posterior).moments(observed, omega, V, cov=True, rtol=rtol)
    whiten = np.linalg.inv(np.linalg.cholesky(V))
    apart = np.linalg.norm((whiten @ (closed.mean - numeric.mean)).reshape(len(omega), -1), axis=1)
    bar = np.hypot(closed.error, numeric.error)
    assert np.isfinite(bar).all()
    assert (apart <= 5 * bar + 1e-9).all()
    # The same outputs at another omega and V: differences of log-partitions do not know the base measure.
    other_omega, other_V = 0.5 * omega, 0.7 * V
    closed_other = model.channel.moments(observed, other_omega, other_V, rtol=min(rtol, 1e-2))
    numeric_other = Channel(model.link, posterior).moments(observed, other_omega, other_V, rtol=rtol)
    a = closed.log_partition - closed_other.log_partition
    b = numeric.log_partition - numeric_other.log_partition
    np.testing.assert_allclose(a, b, atol=5 * rtol)


def test_choices_share_the_level_set() -> None:
    """Shares w_j vol_j of all choices add up to one wherever the level set is met, and weights stay bounded."""
    model = smisym.compile(FAMILIES["no-inverse"].declared)
    surface = Surface(model.link)
    choices = surface.choices()
    assert len(choices) == 2
    Z = np.random.default_rng(5).standard_normal((500, 2))
    J = jacobian(surface, Z, np.arange(2))[1]
    volumes = np.exp([log_volume(J[:, :, c.solved]) for c in choices])
    shares = volumes**2 / (volumes**2).sum(axis=0)
    np.testing.assert_allclose(shares.sum(axis=0), 1.0, rtol=1e-14)
    whole = np.linalg.norm(J[:, 0], axis=1)
    assert (shares / volumes <= 1.0001 / whole).all()  # a single choice has weight 1 / volume, without bound
    assert (1 / volumes).max() > 20 * (shares / volumes).max()


# -------------------------------------------------------------------------------------------------- finite level sets


def test_four_tokens_know_all_fields_up_to_signs() -> None:
    """Two layers, sequence output, T = 4: y fixes h_1 and h_2 up to signs, so that each is learned at 1/(T(T+1))."""
    model = smisym.compile(FAMILIES["sequence-two-T4"].declared)
    observed, omega, V, Z = _draw(model, 10, 7)
    assert isinstance(model.channel.posterior, OnPoints)
    values = model.channel.posterior.read(observed).values
    assert values.shape[1] == 4
    points = values.reshape(10, 4, 2, 4)
    apart = np.abs(np.abs(points) - np.abs(Z)[:, None]).max(axis=(1, 2, 3))
    assert np.median(apart) < 1e-9
    moments = model.channel.moments(observed, omega, V, cov=True)
    assert moments.result is Result.SUCCESS
    # Two signs each: the mean is a hyperbolic tangent for each layer, here coupled through V.
    signs = np.array([[a, b] for a in (1, -1) for b in (1, -1)], dtype=float)
    inverse = np.linalg.inv(V)
    images = signs[:, None, :, None] * Z
    logs = -0.5 * np.einsum("gspt,pq,gsqt->gs", images - omega, inverse, images - omega)
    weight = np.exp(logs - logs.max(axis=0))
    expected = np.einsum("gs,gspt->spt", weight / weight.sum(axis=0), images)
    np.testing.assert_allclose(moments.mean, expected, atol=1e-6)


def test_three_tokens_have_several_classes_and_all_are_solutions() -> None:
    model = smisym.compile(FAMILIES["sequence-two-T3"].declared)
    observed, _, _, Z = _draw(model, 48, 8)
    posterior = model.channel.posterior
    assert isinstance(posterior, OnPoints)
    solutions = posterior.read(observed)
    weights = solutions.log_weight
    points = solutions.values.reshape(48, -1, 2, 3)
    there = np.isfinite(weights)
    again = model.link(points[there])
    owner = np.nonzero(there)[0]
    np.testing.assert_allclose(again, observed.y[owner], rtol=1e-7, atol=1e-7)
    counts = there.sum(axis=1) // 4
    assert counts.max() >= 3
    assert (counts == 1).any()
    # Remembered: the same outputs are not solved again.
    assert posterior.read(observed) is posterior.read(observed)
    # The weight is 1/|det J| up to the units of y, here by central differences.
    k, b = int(np.argmax(counts)), 1
    step = 1e-6
    columns = []
    for p in range(2):
        for t in range(3):
            shift = np.zeros((2, 3))
            shift[p, t] = step
            columns.append(
                (model.link((points[k, b] + shift)[None]) - model.link((points[k, b] - shift)[None])).ravel()
            )
    J = np.array(columns).T[posterior.surface.seen_outputs] / (2 * step) / posterior.surface.unit[:, None]
    singular = np.linalg.svd(J, compute_uv=False)
    np.testing.assert_allclose(weights[k, b], -np.log(singular).sum(), atol=1e-4)
    found = (np.abs(points - Z[:, None]).max(axis=(2, 3)) < 1e-4).any(axis=1)
    assert found.mean() > 0.985


def test_a_set_that_may_be_incomplete_is_not_returned_as_if_it_were_complete() -> None:
    """Linear activation on three tokens: Newton misses solutions that few starts lead to, and says so."""
    model = smisym.compile(attention(3, A(activation="linear"), A(activation="linear"), output="sequence"))
    observed, omega, V, _ = _draw(model, 12, 9)
    moments = model.channel.moments(observed, omega, V)
    doubted = model.channel.posterior.read(observed).doubt > 0
    assert doubted.any()
    assert moments.result is Result.INTEGRATION
    assert (np.isnan(moments.error) | (moments.error > 0))[doubted].all()
    assert (moments.error[~doubted] == 0).all()
    # A map of such posteriors says that it lacks some, in its error and in its code.
    omap = smisym.OverlapMap(model, samples=8, scrambles=2)
    estimates = omap.evaluate(np.zeros((2, 2)))
    assert not all(e.accurate for e in estimates)
    assert np.isfinite([e.E for e in estimates]).all()


# ------------------------------------------------------------------------------------------------- what may go wrong


@pytest.mark.slow
def test_several_equations_doubt_what_single_starts_found() -> None:
    """Many solutions in a slice, few starts: the share of those reached once bounds what no start reached."""
    model = smisym.compile(SMI(("sin(3*z1) + z2*z3", "cos(3*z2) + z1*z3"), 3))
    assert isinstance(model.channel.posterior, OnSlices)
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((6, 3, 1))
    moments = model.channel.moments(model.observe(Z), np.zeros_like(Z), np.eye(3), rtol=3e-2, max_nodes=20000)
    assert moments.result is Result.INTEGRATION
    assert (moments.error > 0.05).any()


def test_rows_of_a_product_keep_the_order_of_their_declaration() -> None:
    """A program whose inputs are not in the order of its layers: moments of each row stay its own."""
    a, b = sp.MatrixSymbol("a", 1, 2), sp.MatrixSymbol("b", 1, 2)
    A1, A2, out, u = (sp.MatrixSymbol(n, 2, k) for n, k in (("A1", 2), ("A2", 2), ("out", 2), ("u", 1)))
    one = Assign(A1, sp.Identity(2) + RowSoftmax(b.T * b))
    rest = (Assign(u, A1 * a.T), Assign(A2, sp.Identity(2) + RowSoftmax(u * u.T)), Assign(out, A2 * A1))
    swapped = smisym.compile(Program((a, b), (one, *rest), out))
    straight = smisym.compile(Program((b, a), (one, *rest), out))
    assert swapped.level_set is not None
    assert swapped.level_set.rule == "product of mixing matrices on two tokens"
    rng = np.random.default_rng(2)
    Z, omega = rng.standard_normal((2, 4, 2, 2))
    first = straight.channel.moments(straight.observe(Z), omega, np.diag([0.5, 0.8]), rtol=1e-2)
    second = swapped.channel.moments(swapped.observe(Z[:, ::-1]), omega[:, ::-1], np.diag([0.8, 0.5]), rtol=1e-2)
    np.testing.assert_allclose(
        second.mean[:, ::-1], first.mean, atol=5 * float(np.hypot(first.error, second.error).max())
    )


def test_declarations_at_the_edge_compile_or_say_why() -> None:
    # A factor that is a number times one softmax, and row sums that vanish.
    for layer in (A(skip=0, readout=1.4), A(skip=1.0, readout=-1.0)):
        model = smisym.compile(attention(2, layer, A(), output="sequence"))
        assert model.channel.free_dimensions >= 0
    with pytest.raises(InputError, match="rank 0 at some fields and 1 at others"):
        smisym.compile(SMI("relu(z1 + z2*exp(z1))", 2))
    # An output that no field in reach gives: no posterior, and no crash.
    model = smisym.compile(FAMILIES["no-inverse"].declared)
    nothing = model.channel.moments(np.array([[-1e3]]), np.zeros((1, 2, 1)), np.eye(2), rtol=0.1)
    assert nothing.result is Result.INTEGRATION


def test_units_of_the_output_do_not_matter() -> None:
    pair = ("z1 + tanh(z1*z2) + z2**3", "sin(z2) + z1*exp(z1/3)")
    tiny = tuple(f"(1/10**8)*({e})" for e in pair)
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((8, 2, 1))
    found = []
    for expressions in (pair, tiny):
        model = smisym.compile(SMI(expressions, 2))
        assert isinstance(model.channel.posterior, OnPoints)
        found.append(model.channel.moments(model.observe(Z), np.zeros_like(Z), np.eye(2)).mean)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


def test_finite_sets_are_found_from_several_threads() -> None:
    model = smisym.compile(FAMILIES["two-outputs"].declared)
    posterior = numeric_posterior(model.link, model.symmetry.signs)
    Z = np.random.default_rng(6).standard_normal((16, 3, 2, 1))
    with ThreadPoolExecutor(4) as pool:
        sets = list(pool.map(lambda z: posterior.read(model.observe(z)).values, [*Z, *Z, *Z]))
    for i in range(16):
        np.testing.assert_array_equal(sets[i], sets[i + 16])


def test_a_flat_output_is_known_by_starts_that_all_end_elsewhere() -> None:
    """Scores of 28 and more give exp(-s^2) = 0: every start far out is a solution, and stays where it is."""
    declared = smisym.Architecture(tokens=2, layers=[A(activation="exp(-s**2)")])
    channel = smisym.compile(declared).channel
    assert isinstance(channel.posterior, OnPoints)
    Z = np.array([[[6.0, 6.5]], [[0.5, 0.8]]])
    y = channel.link.observe(Z)
    # The flat one is given up, and keeps no slots; the other one is complete.
    solutions = channel.posterior.read(y)
    assert solutions.values.shape[1] <= 32
    assert solutions.doubt[0] > 0
    assert solutions.doubt[1] == 0
    found = channel.moments(y, np.zeros_like(Z), np.eye(1), rtol=1e-2)
    assert found.result is Result.INTEGRATION
    assert found.error[0] > 1
    assert found.error[1] <= 1e-12


# -------------------------------------------------------------------------------------------------------- the compiler


def test_the_compiler_says_which_way_it_took_and_why() -> None:
    for expression in ("z1 + tanh(z1*z2) + z2**2", "exp(z1)*z2 + sin(z2)*z1"):
        model = smisym.compile(SMI(expression, 2))
        assert model.level_set is None
        assert isinstance(model.channel.posterior, OnSlices)
        titles = {step.title: step.text for step in model.derivation.steps}
        assert "sympy solved none of" in titles["Rules that did not apply"]
        assert "solved for numerically" in titles["Posterior moments and the denoiser"]
    for expression in ("z1*exp(z2) + z2**3", "atan(z1 + 2*z2)*z2**2"):
        model = smisym.compile(SMI(expression, 2))
        assert model.level_set is not None
        assert model.level_set.rule == "expressions solved on every orthant"


def test_a_search_that_overflows_warns_nobody() -> None:
    """Newton's steps on z exp(z) try fields of many hundreds; warnings are errors here."""
    (found,) = smisym.weak_recovery(smisym.compile(SMI("exp(z1)*z1", 1)), samples=16, scrambles=2).value
    assert (found.kind, found.alpha) == ("trivial", 0.0)
