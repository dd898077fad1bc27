"""JAX against numpy, on a processor: programs, boxes node by node, moments, the overlap map and GAMP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from cases import DECLARED, charted

# Before JAX is loaded: programs that run once are not worth optimising.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import smisym
from smisym import SMI, Architecture, Attention, InputError, OverlapMap, gamp, generate
from smisym.base.accelerators import jax, wide
from smisym.base.backends import JAX, NUMPY, backend
from smisym.base.solution import Result
from smisym.integrate import boxes, quadrature
from smisym.integrate.accuracy import BOXES, Box
from smisym.integrate.cells import Cells
from smisym.integrate.left_out import BLIND, FAINT
from smisym.integrate.modes import Integrand
from smisym.integrate.sums import CellSums
from smisym.kernels.expanding import NotWrittenOut, expanded
from smisym.kernels.jax_code import NotOnDevice, jax_function
from smisym.kernels.straight_line import StraightLine
from smisym.kernels.tracing import call, trace
from smisym.model.channel import Moments
from smisym.model.compiled import Model

pytest.importorskip("jax")
A = Attention
# One to three free dimensions, one sheet and several, directions, weights that sheets share or not.
NETWORKS: dict[str, Architecture | SMI] = {
    "two layers": Architecture(2, (A(), A(skip=0.7))),
    "two layers, three tokens": Architecture(3, (A(), A())),
    "untied": Architecture(2, (A(tied=False),)),
    "rank two": Architecture(2, (A(rank=2),)),
}
# Ridges that nodes pass by, and sheets that end: boxes leave these to the lattice.
ROUGH: dict[str, Architecture | SMI] = {
    "causal": Architecture(2, (A(mask="causal"),)),
    "ellipse": SMI("2*z1**2 + z2**2", 2),
}
Use = Callable[[str], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    return lambda name: monkeypatch.setenv("SMISYM_BACKEND", name)


@cache
def model_of(name: str) -> Model:
    return smisym.compile((NETWORKS | ROUGH)[name])


def drawn(model: Model, samples: int, overlap: float = 0.5) -> tuple[smisym.Observation, np.ndarray, np.ndarray]:
    """Outputs of random fields, and their cavities; V couples the rows a little."""
    rng = np.random.default_rng(4)
    P = model.fields
    omega = np.sqrt(overlap) * rng.standard_normal((samples, P, model.tokens))
    V = (1 - overlap) * (np.eye(P) + 0.2 * (np.ones((P, P)) - np.eye(P)) / P)
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal(omega.shape)
    return model.observe(Z), omega, V


def integrand_of(model: Model, samples: int, overlap: float = 0.5) -> Integrand:
    observation, omega, V = drawn(model, samples, overlap)
    posterior = model.channel.posterior
    found: Integrand = posterior.at(posterior.read(observation), omega, V[None])  # type: ignore[attr-defined]
    return found


# ---------------------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize("name", DECLARED)
def test_a_program_is_the_same_function(name: str) -> None:
    """Every chart in the table of cases, at random points; one that is not written out says what is missing."""
    found = charted(name)
    if found is None:
        return
    link, chart = found
    assert chart.program is not None
    rng = np.random.default_rng(3)
    u = chart.coordinates(link.observe(rng.standard_normal((16, link.fields, link.tokens)))).values
    at = [*rng.standard_normal((len(chart.free_rows) * link.tokens + len(chart.latents), 16)), *u.T]
    try:
        program = expanded(chart.program)
    except NotWrittenOut as error:
        with pytest.raises(NotOnDevice, match=str(error)):
            jax_function(chart.program)
        return
    with np.errstate(all="ignore"):
        ours = program.compile()(*at)
    with wide():
        theirs = [np.asarray(value) for value in jax_function(program)(*at)]
    for mine, other in zip(ours, theirs, strict=True):
        assert other.dtype == np.float64
        np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)


def test_what_jax_does_not_have_is_named() -> None:
    program = trace(lambda a, b: [*call("row_softmax_2", [a, b]), call("least_norm_1_2", [a, b, a])[0]], ["a", "b"])
    with pytest.raises(NotOnDevice, match=r"JAX has no least_norm_1_2, row_softmax_2"):
        jax_function(program)


def test_special_functions_and_constants() -> None:
    from scipy.special import erf, log_ndtr

    program = trace(lambda a: [erf(a) + log_ndtr(a), np.float64(2.5)], ["a"])
    at = np.linspace(-4, 4, 9)
    with wide():
        first, second = jax_function(program)(at)
    np.testing.assert_allclose(first, erf(at) + log_ndtr(at), rtol=1e-12)
    assert second.shape == () and float(second) == 2.5


# ------------------------------------------------------------------------------------------------------------- boxes


@pytest.mark.parametrize("name", [*NETWORKS, *ROUGH])
def test_the_same_nodes_tell_the_same(name: str, use: Use) -> None:
    """A box against its cells one by one, with numpy: sums, what they may hold, and the box around what matters."""
    use("numpy")
    integrand = integrand_of(model_of(name), 5)
    S, d = integrand.samples, integrand.dim
    box, half, depth = BOXES[d][0], 5.0, 10.0
    found = integrand.points()
    assert found is not None
    run = boxes.box_program(found[0], box, True)
    assert run is not None
    told = run(found[1], np.full((S, d), -half), np.full((S, d), half), np.full(S, -np.inf), depth)
    side, step = box.side // box.cell, np.full(S, 2 * half / box.side)
    corners = np.stack(np.meshgrid(*[np.arange(side) - side // 2] * d, indexing="ij"), axis=-1).reshape(-1, d)
    places = (corners - corners[0])[:, None, :]
    for s in range(S):
        cells = Cells(np.full(len(corners), s), corners)
        sums = CellSums(integrand, box.cell, True).of(cells, step[cells.owner], np.full(S, -np.inf))
        scale = np.exp(sums.top - told.top[s])
        assert sums.top.max() == pytest.approx(told.top[s], abs=1e-12)
        first = told.first[s].reshape(-1, 2**d)
        signs = CellSums(integrand, 2, False).signs
        np.testing.assert_allclose(first.sum(axis=1), scale @ sums.first, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(signs @ first.T, np.tensordot(scale, sums.alias, 1), rtol=1e-11, atol=1e-12)
        second = np.tensordot(scale, np.asarray(sums.second), 1)[np.triu_indices(first.shape[0] - 1)]
        np.testing.assert_allclose(told.second[s], second, rtol=1e-12, atol=1e-12)
        assert told.coarse[s] == pytest.approx(scale @ sums.coarse, abs=1e-12)
        # What matters, by the definitions of the adaptive lattice.
        highest, K = sums.peak.max(axis=1), box.cell**d
        even = told.top[s] + np.log(first[0].sum() / K)
        matter = sums.peak > min(told.top[s], even) - depth - FAINT
        touching = (np.abs(places - places[:, 0]) <= 1).all(axis=2)
        ends = ((sums.peak == -np.inf) & (touching @ matter > 0)).any(axis=1)
        keep = (sums.bound > told.top[s] - depth) | (highest > even - depth - FAINT) | ends
        lowest = corners[keep].min(axis=0)
        beyond = corners[keep].max(axis=0) + 1
        np.testing.assert_allclose(told.low[s], lowest * box.cell * step[s], atol=1e-12)
        np.testing.assert_allclose(told.high[s], beyond * box.cell * step[s], atol=1e-12)
        blind = keep & (sums.change > BLIND)
        assert told.unseen[s] == pytest.approx(K * np.exp(sums.bound[blind] - told.top[s]).sum(), rel=1e-9)
        out = ((corners < lowest) | (corners >= beyond)).any(axis=1)
        assert told.outside[s] == pytest.approx(K * np.exp(highest[out] - told.top[s]).sum(), rel=1e-9)
        least = min(told.top[s], even) - depth - FAINT
        cut = CellSums(integrand, box.cell, False).of(cells, step[cells.owner], np.full(S, least)).cut
        assert told.edged[s] == ((keep & cut) | ends).any()
    assert told.edged.any() == (name == "ellipse") and told.unseen.any() == (name == "causal")


def test_the_boxes_of_the_plan_are_made_of_whole_cells() -> None:
    for dim, plan in BOXES.items():
        assert 1 <= dim <= 4
        assert all(box.side % (2 * box.cell) == 0 and box.cell % 2 == 0 for box in plan)
        assert all(finer.side >= 2 * box.side for box, finer in pairwise(plan))


# ----------------------------------------------------------------------------------------------------------- moments


def whitened(a: Moments, b: Moments) -> np.ndarray:
    """Distance of the means (S,) in the norm of V^{-1}."""
    return np.sqrt(np.maximum(np.einsum("spt,spt->s", a.mean - b.mean, a.g - b.g), 0.0))


@pytest.mark.parametrize("name", NETWORKS)
def test_moments_are_those_of_numpy_within_their_errors(name: str, use: Use) -> None:
    model = model_of(name)
    data = drawn(model, 20)
    rtol = model.channel.plan.averaged
    use("numpy")
    plain = model.channel.moments(*data, cov=True, rtol=rtol)
    truth = model.channel.moments(*data, cov=True, rtol=1e-6)
    use("jax+numpy")
    found = model.channel.moments(*data, cov=True, rtol=rtol)
    assert found.result is Result.SUCCESS and (found.error <= rtol).all()
    assert (whitened(found, truth) <= found.error + truth.error).all()
    assert (whitened(found, plain) <= found.error + plain.error).all()
    for field in ("log_partition", "mean", "cov", "g", "dg"):
        close, exact = getattr(found, field), getattr(truth, field)
        np.testing.assert_allclose(close, exact, rtol=0, atol=rtol * np.abs(exact).max())
    # Boxes did it, not the lattice behind them: their nodes are whole numbers of boxes.
    integrand = integrand_of(model, 1)
    sizes = integrand.branches * np.cumsum([box.side**integrand.dim for box in BOXES[integrand.dim]])
    assert np.isin(found.nodes, sizes).mean() > 0.8


def test_what_boxes_do_not_resolve_is_left_to_the_lattice(use: Use) -> None:
    """Posteriors that are too narrow for boxes, and a budget for both."""
    model = model_of("rank two")
    data = drawn(model, 40, overlap=0.99)
    use("numpy")
    plain = model.channel.moments(*data, cov=True, rtol=1e-6)
    use("jax+numpy")
    found = model.channel.moments(*data, cov=True, rtol=1e-6)
    assert found.result is plain.result is Result.SUCCESS
    assert (whitened(found, plain) <= 2e-6).all()
    integrand = integrand_of(model, 40, overlap=0.99)
    resolved = boxes.on_boxes(integrand, 1e-6, True, 20.0, 10**5)
    assert resolved is not None and 0 < resolved.converged.mean() < 0.5
    np.testing.assert_array_equal(found.nodes[resolved.converged], resolved.nodes[resolved.converged])
    few = quadrature.lattice(integrand, rtol=1e-6, cov=True, max_nodes=500)
    assert (few.nodes <= 500).all() and (few.nodes > 320).any() and not few.converged.all()


def test_the_same_bits_in_any_batch_and_no_compilation_for_it(use: Use) -> None:
    use("jax+numpy")
    model = model_of("untied")
    observation, omega, V = drawn(model, 70)
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_: object) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    first = model.channel.moments(observation.y, omega, V, cov=True, rtol=1e-3)
    # Those far from where the model has its cavities are left to the lattice of numpy, whose sums are of batches.
    integrand = integrand_of(model, 1)
    sizes = integrand.branches * np.cumsum([box.side**integrand.dim for box in BOXES[integrand.dim]])
    on_boxes = np.flatnonzero(np.isin(first.nodes, sizes))
    assert len(on_boxes) > 60
    jax().monitoring.register_event_duration_secs_listener(listen)
    for chosen in (on_boxes, on_boxes[3:4], on_boxes[-10:]):
        some = model.channel.moments(observation.y[chosen], omega[chosen], V, cov=True, rtol=1e-3)
        np.testing.assert_array_equal(some.mean, first.mean[chosen])
        np.testing.assert_array_equal(some.cov, np.asarray(first.cov)[chosen])
        np.testing.assert_array_equal(some.error, first.error[chosen])
    assert not compiled
    with wide():
        jax().jit(lambda a: a + len(compiled))(1.0)
    assert compiled, "what listens hears"


# ------------------------------------------------------------------------------------------- what goes through moments


def test_the_overlap_map_and_gamp(use: Use) -> None:
    """One evaluation of E(Q), and three steps of GAMP, as with numpy."""
    model = model_of("untied")
    data = generate(model, 100, 1.5, np.random.default_rng(1))
    start = 0.5 * data.W
    found = {}
    for name in ("numpy", "jax+numpy"):
        use(name)
        overlaps = OverlapMap(model, samples=256, scrambles=2, seed=3)
        E = overlaps(np.diag([0.3, 0.6]))[0]
        steps = gamp(model, data.X, data.y, W=data.W, initial=start, max_steps=3)
        found[name] = E, steps.value.W_hat
    (E, W), (other_E, other_W) = found.values()
    np.testing.assert_allclose(other_E, E, rtol=1e-3, atol=1e-6)
    assert np.abs(E).max() > 0.1
    np.testing.assert_allclose(other_W, W, atol=1e-3)
    assert not np.array_equal(other_E, E), "numpy did both"
    again = OverlapMap(model, samples=256, scrambles=2, seed=3)
    np.testing.assert_array_equal(again(np.diag([0.3, 0.6]))[0], other_E)


# ------------------------------------------------------------------------------------------------------------- choice


def test_the_choice_says_what_was_found_and_changes_nothing_else(use: Use) -> None:
    use("jax+numpy")
    assert (backend().name, backend().loops) == (JAX, NUMPY)
    assert "cpu" in backend().why
    with wide():
        assert jax().numpy.ones(1).dtype == np.float64
    assert jax().numpy.ones(1).dtype == np.float32
    use("jax+torch")
    with pytest.raises(InputError, match="numpy, numba or jax"):
        backend()


def test_without_jax_the_extra_is_named() -> None:
    code = """if True:
        import sys
        sys.modules["jax"] = None
        from smisym import InputError
        from smisym.base.backends import backend
        try:
            backend()
        except InputError as error:
            print(error)
    """
    environment = os.environ | {"SMISYM_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "smisym[gpu]" in done.stdout and "jax" in done.stdout


def test_programs_are_kept() -> None:
    integrand = integrand_of(model_of("untied"), 2)
    found = integrand.points()
    assert found is not None
    box = Box(16, 8)
    assert boxes.box_program(found[0], box, False) is boxes.box_program(found[0], box, False)
    empty = StraightLine(("a",), (), ("a",))
    assert jax_function(empty)(3.0) == [3.0]
