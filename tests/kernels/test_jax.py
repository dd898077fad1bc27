"""JAX against numpy, on a processor: programs, boxes node by node, moments, the overlap map and GAMP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from charts.test_programs import DECLARED, chart_of, given

# Before JAX is loaded: programs that run once are not worth optimising.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import smisym
from smisym import SMI, Architecture, Attention, InputError, OverlapMap, gamp, generate
from smisym.base.backends import JAX, NUMPY, backend
from smisym.base.device import jax, wide
from smisym.base.solution import Result
from smisym.integrate import boxes, quadrature
from smisym.integrate.accuracy import BOXES, LATTICES, Box
from smisym.integrate.cells import Cells
from smisym.integrate.modes import Integrand
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
Use = Callable[[str], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    return lambda name: monkeypatch.setenv("SMISYM_BACKEND", name)


@cache
def model_of(name: str) -> Model:
    return smisym.compile(NETWORKS[name])


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
    found = chart_of(name)
    if found is None or found[1].program is None:
        return
    link, chart = found
    at = given(link, chart, 16)
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


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_nodes_tell_the_same(name: str, use: Use) -> None:
    """A box whose cells are those of a level of the adaptive lattice, all of them: its sums, errors, next box."""
    use("numpy")
    integrand = integrand_of(model_of(name), 5)
    # So deep that no cell is left out of the sums; then as deep as a tolerance has it, for what is kept.
    state, lattice, *_ = both(integrand, 80.0)
    np.testing.assert_allclose(state.log_norm, lattice.log_norm, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.mean, lattice.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.cov, lattice.cov, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.error, lattice.error, rtol=1e-9, atol=1e-12)
    state, lattice, told, cells, keep = both(integrand, 10.0)
    width = LATTICES[integrand.dim].cell * lattice.first_step
    for s in range(integrand.samples):
        kept = cells.corner[keep & (cells.owner == s)]
        np.testing.assert_allclose(told.low[s], kept.min(axis=0) * width, atol=1e-12)
        np.testing.assert_allclose(told.high[s], (kept.max(axis=0) + 1) * width, atol=1e-12)
    assert not keep.all()


def both(integrand: Integrand, depth: float) -> tuple[boxes._State, quadrature._LatticeState, boxes.Told, Cells, Any]:
    """One box, and the cells of the adaptive lattice that fill it, with numpy; which of these are kept."""
    S, d = integrand.samples, integrand.dim
    box, index = BOXES[d][0], np.arange(S)
    assert box.cell == LATTICES[d].cell
    lattice = quadrature._LatticeState(integrand, 1e-2, True, depth, 10**9, LATTICES[d])
    state = boxes._State(integrand, 1e-2, True, depth)
    state.high[:] = 0.5 * box.side * lattice.first_step
    state.low = -state.high
    found = integrand.points()
    assert found is not None
    run = boxes._program(found[0], box, True)
    assert run is not None
    told = run(found[1], state.low, state.high, state.best, depth)
    going = state.digest(index, box, told)
    side = box.side // box.cell
    corners = np.stack(np.meshgrid(*[np.arange(side) - side // 2] * d, indexing="ij"), axis=-1).reshape(-1, d)
    cells = Cells(np.repeat(index, len(corners)), np.tile(corners, (S, 1)))
    # The highest node is known from the probe, as a rule.
    lattice.best[:] = told.top
    lattice.left_out.begin(index, told.top)
    keep, _ = lattice.digest(index, cells, lattice.evaluate(cells))
    # The adaptive lattice counts what it drops at once, a box when it has left it out; e^-13 of the sums, in one alone.
    assert (state.error <= lattice.error * (1 + 1e-4)).all()
    np.testing.assert_array_equal(going, state.error > 1e-2)
    return state, lattice, told, cells, keep


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
    data = drawn(model, 40)
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
    jax().monitoring.register_event_duration_secs_listener(listen)
    for chosen in (slice(0, 70), slice(3, 4), slice(60, 70)):
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
    data = generate(model, 200, 1.5, np.random.default_rng(1))
    start = 0.5 * data.W
    found = {}
    for name in ("numpy", "jax+numpy"):
        use(name)
        overlaps = OverlapMap(model, samples=512, scrambles=2, seed=3, rtol=1e-4)
        E = overlaps(np.diag([0.3, 0.6]))[0]
        steps = gamp(model, data.X, data.y, W=data.W, initial=start, max_steps=3, rtol=1e-4)
        found[name] = E, steps.value.W_hat
    (E, W), (other_E, other_W) = found.values()
    np.testing.assert_allclose(other_E, E, rtol=1e-4, atol=1e-6)
    assert np.abs(E).max() > 0.1
    np.testing.assert_allclose(other_W, W, atol=1e-3)
    assert not np.array_equal(other_E, E), "numpy did both"
    again = OverlapMap(model, samples=512, scrambles=2, seed=3, rtol=1e-4)
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
    assert boxes._program(found[0], box, False) is boxes._program(found[0], box, False)
    empty = StraightLine(("a",), (), ("a",))
    assert jax_function(empty)(3.0) == [3.0]
