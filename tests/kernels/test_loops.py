"""Compiled loops against numpy: the same nodes, and the same numbers to twelve digits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.integrate import importance, quadrature
from smisym.integrate.averages import Average, discrete
from smisym.integrate.ball_loops import weights_as_factors
from smisym.integrate.balls import on_balls
from smisym.integrate.modes import Integrand, at_points
from smisym.integrate.seeking import find_modes
from smisym.kernels.numba_code import load
from smisym.kernels.pairs import look_source, pairs_source, scouts_source
from smisym.model.channel import Moments
from smisym.model.compiled import Model
from smisym.posterior.composite import ByFrame
from smisym.posterior.level_set import OnSheets

pytest.importorskip("numba")
A = Attention
# Together they have one to four free dimensions, one sheet and several, directions, latent coordinates, and weights
# that sheets share or not.
NETWORKS: dict[str, Architecture | SMI] = {
    "two layers": Architecture(2, (A(), A(skip=0.7))),
    "two layers, three tokens": Architecture(3, (A(), A())),
    "untied": Architecture(2, (A(tied=False),)),
    "rank three": Architecture(2, (A(rank=3),)),
    "causal": Architecture(2, (A(mask="causal"),)),
    "product": SMI("z1*z2", 2),
    "ellipse": SMI("2*z1**2 + z2**2", 2),
    "tanh": Architecture(2, (A(activation="tanh(s)"), A())),
}
# So many that loops pass over them one by one; some end.
MANY_SHEETS: dict[str, Architecture | SMI] = {
    "eight sheets": SMI("abs(z1) + abs(z2) + abs(z3)", 3),
    "eight sheets of one dimension": SMI("z1**2 + sign(z1*z2)", 2),
}
Use = Callable[[str], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Loops stay in the user's cache, for all workers and for the next run, by a hash of their source and of what
    compiles it; test_modules.py has folders of its own, in which nothing is compiled yet."""
    return lambda name: monkeypatch.setenv("SMISYM_BACKEND", name)


def drawn(model: Model, samples: int, overlap: float = 0.6) -> tuple[smisym.Observation, np.ndarray, np.ndarray]:
    """Outputs of random fields, and their cavities; V couples what symmetry does not forbid."""
    rng = np.random.default_rng(4)
    P = model.fields
    omega = np.sqrt(overlap) * rng.standard_normal((samples, P, model.tokens))
    V = (1 - overlap) * (np.eye(P) + 0.2 * (np.ones((P, P)) - np.eye(P)) / P)
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal(omega.shape)
    return model.observe(Z), omega, V


def integrand(model: Model, samples: int, overlap: float = 0.6) -> Integrand:
    observation, omega, V = drawn(model, samples, overlap)
    posterior = model.channel.posterior
    if isinstance(posterior, ByFrame):
        posterior = posterior.otherwise
    return posterior.at(posterior.read(observation), omega, V[None])  # type: ignore[attr-defined]


def same(a: Average, b: Average) -> None:
    np.testing.assert_array_equal(a.nodes, b.nodes)
    scale = 1e-12 * (1 + np.abs(b.mean).max())
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-12, atol=scale)
    np.testing.assert_allclose(a.log_norm, b.log_norm, rtol=1e-12, atol=1e-12)
    if a.cov is not None and b.cov is not None:
        np.testing.assert_allclose(a.cov, b.cov, rtol=1e-10, atol=1e-10)
    # Errors are powers of small differences of sums.
    np.testing.assert_allclose(a.error, b.error, rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("name", NETWORKS)
def test_maxima(name: str, use: Use) -> None:
    """Where both ways climb to, and that nothing close by is higher in that sheet."""
    posterior = integrand(smisym.compile(NETWORKS[name]), 12)
    found = {}
    for backend in ("numpy", "numba"):
        use(backend)
        found[backend] = find_modes(posterior, np.arange(12))
    one, other = found["numba"], found["numpy"]
    # A step whose gain is a rounding away from what ends the climb may be the last one, or not.
    there = np.isfinite(one.value)
    np.testing.assert_array_equal(there, np.isfinite(other.value))
    settled = there & (np.abs(np.where(there, one.value, 0.0) - np.where(there, other.value, 0.0)) < 1e-5)
    assert settled.sum() > 0.98 * there.sum()
    np.testing.assert_allclose(one.x[settled], other.x[settled], atol=1e-4)
    np.testing.assert_allclose(one.jacobian[settled], other.jacobian[settled], rtol=1e-3, atol=1e-3)
    best = one.value.argmax(axis=1)
    rows, top = np.arange(12), one.value.max(axis=1)
    x = one.x[rows, best][..., None] + 0.02 * np.random.default_rng(0).standard_normal((12, posterior.dim, 50))
    around = at_points(posterior, np.arange(12), np.moveaxis(x, 0, 2))
    near = around.log_density(np.moveaxis(x, 0, 2))[one.branch[rows, best], :, rows]
    weight = around.log_weight[one.branch[rows, best] if len(around.log_weight) > 1 else 0, :, rows]
    at = at_points(posterior, np.arange(12), np.moveaxis(one.x[rows, best][..., None], 0, 2)).log_weight
    own = at[one.branch[rows, best] if len(at) > 1 else 0, 0, rows]
    # It is the sum of squares that falls, beside the weight; steps that gain less than 1e-3 end it, and as each may
    # take back but a part of what is left, that may be some times as much.
    assert ((near - weight).max(axis=1) <= top - own + 2e-2).all()


@pytest.mark.parametrize("cov", [False, True])
@pytest.mark.parametrize("name", NETWORKS | MANY_SHEETS)
def test_lattices(name: str, cov: bool, use: Use) -> None:
    model = smisym.compile((NETWORKS | MANY_SHEETS)[name])
    posterior = integrand(model, 12)
    assert posterior.points() is not None, "this network is here to be compiled"
    found = {}
    for backend in ("numpy", "numba"):
        use(backend)
        with np.errstate(all="ignore"):
            found[backend] = quadrature.lattice(posterior, rtol=1e-3, cov=cov, max_nodes=10**5)
    same(found["numba"], found["numpy"])


@pytest.mark.parametrize("name", ["untied", "two layers"])
def test_points_and_sampling(name: str, use: Use) -> None:
    posterior = integrand(smisym.compile(NETWORKS[name]), 6)
    x = np.random.default_rng(1).standard_normal((posterior.dim, 5, 4))
    index = np.array([0, 5, 5, 2])
    use("numba")
    mine = at_points(posterior, index, x)
    own = posterior.evaluate(index, x)
    np.testing.assert_allclose(mine.residuals, own.residuals, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mine.log_weight, own.log_weight, rtol=1e-12, atol=1e-12)
    if own.along is not None and mine.along is not None:
        np.testing.assert_allclose(mine.along, own.along, rtol=1e-12, atol=1e-12)
    assert (mine.along is None) == (own.along is None)
    sampled = {}
    for backend in ("numpy", "numba"):
        use(backend)
        rng = np.random.default_rng(0)
        with np.errstate(all="ignore"):
            sampled[backend] = importance.mixture(posterior, rtol=1e-2, cov=True, rng=rng, max_nodes=8192)
    # Where maxima are found decides on where points are drawn: the same up to rounding.
    np.testing.assert_allclose(sampled["numba"].mean, sampled["numpy"].mean, rtol=1e-6, atol=1e-6)


def test_finite_sums(use: Use) -> None:
    posterior = integrand(smisym.compile(Architecture(3, (A(),))), 8)
    found = {}
    for backend in ("numpy", "numba"):
        use(backend)
        found[backend] = discrete(posterior, cov=True)
    same(found["numba"], found["numpy"])


@pytest.mark.parametrize(
    "layers",
    [(A(), A(), A()), (A(), A(skip=0.5), A(tied=False)), (A(mask="causal"), A(activation="linear"), A())],
    ids=["tied", "sampled", "causal and linear"],
)
def test_chains(layers: tuple[Attention, ...], use: Use) -> None:
    model = smisym.compile(Architecture(2, layers))
    observation, omega, _ = drawn(model, 6)
    found: dict[str, Moments] = {}
    for backend in ("numpy", "numba"):
        use(backend)
        V = 0.4 * np.eye(model.fields)
        found[backend] = model.channel.moments(observation, omega, V, cov=True, rtol=1e-2, max_nodes=4000)
    mine, own = found["numba"], found["numpy"]
    np.testing.assert_array_equal(mine.nodes, own.nodes)
    np.testing.assert_array_equal(mine.statistical, own.statistical)
    # Where points are drawn depends on where maxima are found, which are found to fewer digits.
    digits = 1e-8 if own.statistical.any() else 1e-12
    np.testing.assert_allclose(mine.mean, own.mean, rtol=digits, atol=digits)
    np.testing.assert_allclose(mine.cov, own.cov, rtol=10 * digits, atol=10 * digits)  # type: ignore[arg-type]
    np.testing.assert_allclose(mine.log_partition, own.log_partition, rtol=digits, atol=10 * digits)
    np.testing.assert_allclose(mine.error, own.error, rtol=1e-6, atol=1e-13)


def test_the_same_bits_twice_and_by_several_threads(use: Use) -> None:
    use("numba")
    model = smisym.compile(NETWORKS["two layers"])
    observation, omega, V = drawn(model, 40)
    first = smisym.overlap_map(model, samples=64, scrambles=2, workers=1).evaluate(0.3 * np.eye(2))
    second = smisym.overlap_map(model, samples=64, scrambles=2, workers=2).evaluate(0.3 * np.eye(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.E, b.E)
    twice = [model.channel.moments(observation, omega, V, rtol=1e-4).mean for _ in range(2)]
    np.testing.assert_array_equal(*twice)


def test_sums_over_pairs_of_nothing(use: Use) -> None:
    """Rows without columns, and columns of weight zero, are no NaN."""
    use("numba")
    run = load(pairs_source(3, 2, True)).pairs
    starts = np.array([0, 0, 0])
    top, found, second = np.empty(2), np.empty((2, 4, 2)), np.empty((2, 2, 2))
    run(np.zeros((2, 3)), np.zeros((3, 0)), np.zeros(0), np.zeros(0), starts, top, found, second)
    assert (top == -np.inf).all() and (found == 0).all() and (second == 0).all()
    dead = np.full(5, -np.inf)
    run(np.zeros((2, 3)), np.ones((3, 5)), dead, np.zeros(5), np.array([0, 2, 5]), top, found, second)
    assert (top == -np.inf).all() and (found == 0).all()


@pytest.mark.parametrize(
    "source",
    [partial(pairs_source, 4, 2, True), partial(scouts_source, 4), partial(look_source, 4)],
    ids=["pairs", "scouts", "look"],
)
def test_loops_over_pairs_can_be_read(source: Callable[[], str]) -> None:
    text = source()
    compile(text, "<loops>", "exec")
    assert max(map(len, text.splitlines())) <= 200


def test_what_is_no_program_stays_numpy(use: Use) -> None:
    """A chart that calls what is not written out is carried out by numpy whatever the backend."""
    use("numba")
    model = smisym.compile(Architecture(2, (A(tied=False, rank=2),)))
    posterior = integrand(model, 2)
    assert isinstance(posterior, OnSheets) and posterior.points() is None
    observation, omega, V = drawn(model, 2)
    assert np.isfinite(model.channel.moments(observation, omega, V, max_nodes=2000).mean).all()


def test_one_sample_at_points_that_all_share(use: Use) -> None:
    """What is broadcast to one column cannot be written to, and is as contiguous as any other array."""
    use("numba")
    one = integrand(smisym.compile(NETWORKS["two layers"]), 1)
    x = np.broadcast_to(np.linspace(-1, 1, 2 * 5).reshape(2, 5, 1), (2, 5, 1))
    assert not x.flags.writeable and x.flags.c_contiguous
    fast = at_points(one, np.arange(1), x)
    use("numpy")
    plain = at_points(one, np.arange(1), x)
    np.testing.assert_allclose(fast.residuals, plain.residuals, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cov", [False, True])
@pytest.mark.parametrize("name", ["two layers", "two layers, three tokens", "ellipse", "eight sheets"])
def test_balls(name: str, cov: bool, use: Use) -> None:
    """All lattices of a posterior in one compiled loop: the same nodes and numbers, and the same left to others."""
    model = smisym.compile((NETWORKS | MANY_SHEETS)[name])
    # Narrow posteriors too: nodes that may pass by a ridge, balls far from the origin.
    for overlap in (0.6, 0.97):
        posterior, found = integrand(model, 24, overlap), {}
        for backend in ("numpy", "numba"):
            use(backend)
            with np.errstate(all="ignore"):
                found[backend] = on_balls(posterior, 1e-4, cov, 10**6)
        one, other = found["numba"], found["numpy"]
        if one is None or other is None:
            assert name in ("ellipse", *MANY_SHEETS) and one is other
            return
        known = np.flatnonzero(other.converged)
        assert len(known) > (12 if overlap < 0.9 else 3)
        np.testing.assert_array_equal(one.converged, other.converged)
        np.testing.assert_array_equal(one.nodes, other.nodes)
        same(one.take(known), other.take(known))


def test_weights_without_logarithms() -> None:
    """The log-weight of two layers is minus the log of a determinant: its reciprocal is there already."""
    found = integrand(smisym.compile(NETWORKS["two layers"]), 3).points()
    assert found is not None
    point, numbers = found
    program, factors = weights_as_factors(point)
    assert factors and not any(line.operation == "log" for line in program.lines)
    assert sum(line.operation == "divide" for line in program.lines) <= sum(
        line.operation == "divide" for line in point.program.lines
    )
    at = [*np.random.default_rng(2).standard_normal((point.dim, 5)), *(np.full(5, p) for p in numbers[1])]
    plain, given = point.program.compile()(*at), program.compile()(*at)
    for k, (a, b) in enumerate(zip(plain, given, strict=True)):
        weight = k >= point.branches * point.residuals
        np.testing.assert_allclose(np.exp(a) if weight else a, b, rtol=1e-13)
    # A weight that is no logarithm stays as it is.
    untied = integrand(smisym.compile(NETWORKS["untied"]), 3).points()
    assert untied is not None and weights_as_factors(untied[0]) == (untied[0].program, False)
