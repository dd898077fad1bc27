"""First thresholds by quadrature over outputs: the lattice and its orbits, limits of series, and known values."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from oracles.description import Layer, Network
from oracles.thresholds import lower_hermite, susceptibilities

import smisym
from smisym import Architecture, Attention
from smisym.theory.output_lattice import OutputLattice, exchanges, orbits
from smisym.theory.outputs import Outputs
from smisym.theory.over_outputs import first_threshold, limit, on_lattice

A = Attention
RING = ((True, True, False), (False, True, True), (True, False, True))


def signed_exchanges(size: int) -> np.ndarray:
    found = [
        np.eye(size)[list(order)] * np.array(signs)
        for order in itertools.permutations(range(size))
        for signs in itertools.product((1.0, -1.0), repeat=size)
    ]
    return np.stack(sorted(found, key=lambda g: -np.trace(g)))


def test_one_of_each_orbit() -> None:
    """Of all odd points of a cube, under all signed exchanges: those with sorted positive coordinates."""
    line = np.arange(-5, 6, 2)
    points = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    chosen, many = orbits(points, signed_exchanges(3))
    assert many.sum() == len(points)
    kinds = {tuple(sorted(np.abs(p))) for p in points}
    assert {tuple(sorted(np.abs(p))) for p in chosen} == kinds
    assert len(chosen) == len(kinds)
    with pytest.raises(ArithmeticError, match="orbits"):
        orbits(points[:-1], signed_exchanges(3))


@pytest.mark.parametrize("size", [2, 3])
def test_the_lattice_integrates_a_narrow_gaussian(size: int) -> None:
    """Of width 1 along (1, ..., 1) and 0.1 across: its mass and its second moment."""
    along = np.ones((size, 1)) / np.sqrt(size)
    across = np.linalg.svd(along, full_matrices=True)[0][:, 1:]
    # Exchanges without signs, and all signs at once: they leave the line along as it is.
    group = signed_exchanges(size)
    group = group[np.abs(group.sum(axis=(1, 2))) == size]
    normals = np.random.default_rng(0).standard_normal((1024, size))
    sample = normals[:, :1] @ along.T + 0.1 * normals[:, 1:] @ across.T
    lattice = OutputLattice.of(sample, group)
    assert sorted(space.shape[1] for space in lattice.spaces) == sorted({1, size - 1} if size > 2 else [1, 1])
    u, log_measure, far = lattice.nodes(0.25, 3.2)
    square = ((u @ along) ** 2).sum(axis=1), ((u @ across) ** 2).sum(axis=1)
    log_p = -0.5 * (square[0] + square[1] / 0.01) - 0.5 * size * np.log(2 * np.pi) - (size - 1) * np.log(0.1)
    w = np.exp(log_p + log_measure)
    assert abs(w.sum() - 1) < 1e-6
    assert abs((w * square[0]).sum() - 1) < 1e-5
    assert abs((w * square[1]).sum() - 0.01 * (size - 1)) < 1e-7
    assert w[far].sum() < 1e-6


@pytest.mark.parametrize(
    ("declared", "count"),
    [
        (Architecture(3, (A(), A())), 12),  # all exchanges of tokens, and the sign
        (Architecture(3, (A(mask=RING), A())), 6),  # turns of the ring, and the sign
        (Architecture(2, (A(mask="causal"), A())), 2),  # the sign alone
        (Architecture(2, (A(tied=False),)), 2),  # the exchange of tokens turns scores over
    ],
)
def test_exchanges_are_held_against_the_link(declared: Architecture, count: int) -> None:
    outputs = Outputs.of(smisym.compile(declared))
    assert outputs is not None
    group = exchanges(outputs.shown, outputs.size, declared.tokens)
    assert len(group) == count
    assert np.array_equal(group[0], np.eye(outputs.size))
    for g, h in itertools.product(group, repeat=2):
        assert (np.abs(group - g @ h).max(axis=(1, 2)) == 0).any(), "not a group"


@pytest.mark.parametrize("tokens", [2, 3])
def test_one_of_each_orbit_stands_for_all(tokens: int) -> None:
    """The same threshold from all points of a lattice as from one of each orbit; and what makes the difference."""
    model = smisym.compile(Architecture(tokens, (A(), A())))
    outputs = Outputs.of(model)
    assert outputs is not None
    group = exchanges(outputs.shown, tokens, tokens)
    few = OutputLattice.of(outputs.sample(np.random.default_rng(0).standard_normal((512, 2, tokens))), group)
    all_points = dataclasses.replace(few, group=group[:1])
    one, other = (on_lattice(outputs, (1,), lattice.nodes(0.8, 1.8), 1e-8) for lattice in (few, all_points))
    assert one.alpha == pytest.approx(other.alpha, rel=1e-7)
    assert len(few.nodes(0.8, 1.8)[0]) < 2 * len(all_points.nodes(0.8, 1.8)[0]) / len(group)


def test_limits_of_series() -> None:
    """Exponential convergence, a power of the step, and noise: the error holds each time, and is not wild."""
    steps = 0.75 ** np.arange(8)
    fast = [1 + np.exp(-3 / h) for h in steps]
    value, error = limit(fast[:4])
    assert abs(value - 1) <= error < 1e-2
    for power in (1, 2):
        slow = [1 + h**power + 0.3 * h ** (2 * power) for h in steps]
        value, error = limit(slow)
        assert abs(value - 1) <= error < 0.3 * abs(slow[-1] - 1)
    value, error = limit([1.0, 1.01, 0.99, 1.01])
    assert abs(value - 1) <= error < 0.1
    assert limit([1.0])[1] == np.inf


@pytest.mark.parametrize(
    ("skip", "known"),
    # Of an earlier program: rows at step 0.2 to seven deviations, outputs at step 0.2 one of each orbit, nine digits.
    [(1.0, 0.095528615), (0.5, 0.10965206), (0.3, 0.12379528)],
)
def test_two_layers_on_three_tokens(skip: float, known: float) -> None:
    """Against Gauss-Hermite nodes and an outer rule of other axes, whose change under refinement bounds its error."""
    model = smisym.compile(Architecture(3, (A(skip=skip), A(skip=skip))))
    alpha, error = first_threshold(model, (1,))
    assert error < 1e-5 * alpha
    assert abs(alpha - known) < error + 1e-8
    network = Network(3, (Layer(skip=skip), Layer(skip=skip)))
    rough, fine = (1 / susceptibilities(network, lower_hermite(n, 3), outer=12).max() for n in (20, 30))
    assert abs(alpha - fine) < error + abs(fine - rough)
    assert abs(fine - rough) < 3e-4 * alpha


@pytest.mark.parametrize(
    ("declared", "exact", "within"),
    [
        (Architecture(2, (A(),)), 1 / 6, 1e-5),
        (Architecture(3, (A(),)), 1 / 12, 1e-5),
        (Architecture(2, (A(rank=2),)), 2 / 5, 1e-4),
        (Architecture(2, (A(tied=False),)), np.sqrt(5) - 2, 1e-3),
        (Architecture(2, (A(), A())), 1 / 5.391479632959364, 1e-5),
        (Architecture(3, (A(activation="s/(1 + abs(s))"),)), 1 / 12, 1e-5),
    ],
)
def test_known_thresholds(declared: Architecture, exact: float, within: float) -> None:
    """Closed forms (docs/architectures.md) and, for two layers, an independent nested quadrature."""
    found = smisym.weak_recovery(smisym.compile(declared), samples=1024, stages=1).value[0]
    assert abs(found.alpha - exact) <= found.error
    assert found.error < within * exact
