"""Outputs that share no field: part by part, against all at once."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, Program
from smisym.link.components import find_components
from smisym.model.channel import Channel

A = Attention
SPLIT = Architecture(2, (A(heads=2), A(heads=2)), head_layout="split")
STACKED = Architecture(2, (A(heads=2, tied=False),))


def drawn(model: smisym.Model, count: int) -> tuple[smisym.link.linking.Observation, np.ndarray]:
    omega, rest = np.sqrt(0.5) * np.random.default_rng(3).standard_normal((2, count, model.fields, model.tokens))
    return model.observe(omega + rest), omega


@pytest.mark.parametrize(
    ("declared", "rows"),
    [
        (SPLIT, [(0, 2), (1, 3)]),
        (STACKED, [(0, 1), (2, 3)]),
        (Architecture(2, (A(), A(heads=2))), []),
        (Architecture(2, (A(heads=2),), combine="sum", noise=0.1), []),
    ],
)
def test_parts_are_found_from_the_data_flow(declared: Architecture, rows: list[tuple[int, ...]]) -> None:
    assert [part.rows for part in find_components(smisym.compile(declared).link)] == rows


def test_a_program_without_a_name_has_its_parts() -> None:
    """The same program, with other names and its inputs in another order."""
    program = smisym.compile(SPLIT).link.program
    moved = Program(program.inputs[::-1], program.assigns, program.output, program.more_outputs)
    model = smisym.compile(moved.rename({symbol.name: f"x{k}" for k, symbol in enumerate(moved.inputs)}))
    assert [part.component.rows for part in model.channel.parts] == [(1, 3), (0, 2)]


@pytest.mark.parametrize("declared", [SPLIT, STACKED])
def test_a_product_is_what_all_fields_together_give(declared: Architecture) -> None:
    model = smisym.compile(declared)
    y, omega = drawn(model, 4)
    V = np.diag([0.5, 0.3, 0.4, 0.6])
    found = model.channel.moments(y, omega, V, cov=True, rtol=1e-7)
    whole = Channel(model.link, model.channel.posterior).moments(y, omega, V, cov=True, rtol=1e-3)
    off = np.sqrt(np.einsum("spt,spt->s", found.mean - whole.mean, found.g - whole.g))
    assert (off <= found.error + whole.bound).all()
    assert np.ptp(found.log_partition - whole.log_partition) < 2e-3
    assert whole.cov is not None and found.cov is not None and found.dg is not None and whole.dg is not None
    np.testing.assert_allclose(found.cov, whole.cov, atol=3e-3)
    np.testing.assert_allclose(found.dg, whole.dg, atol=3e-2)


def test_a_cavity_that_couples_parts_is_integrated_as_a_whole() -> None:
    """And goes over into the product as the coupling vanishes."""
    model = smisym.compile(STACKED)
    y, omega = drawn(model, 4)
    coupled, V = 0.5 * np.eye(4), 0.5 * np.eye(4)
    coupled[0, 2] = coupled[2, 0] = 1e-9
    one, other = (model.channel.moments(y, omega, each, rtol=1e-7) for each in (V, coupled))
    assert other.nodes.mean() > 2 * one.nodes.mean()
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)


def test_noise_leaves_a_product() -> None:
    """Under noise too: parts integrate over their own fields."""
    model = smisym.compile(Architecture(2, (A(heads=2),), noise=0.05))
    rng = np.random.default_rng(5)
    omega, rest = np.sqrt(0.5) * rng.standard_normal((2, 3, 2, 2))
    y = model.channel.sample(omega + rest, rng)
    V = 0.5 * np.eye(2)
    found = model.channel.moments(y, omega, V, rtol=1e-5)
    whole = Channel(model.link, model.channel.posterior, model.noise).moments(y, omega, V, rtol=1e-3)
    assert len(model.channel.parts) == 2
    np.testing.assert_allclose(found.mean, whole.mean, atol=2e-3)
    np.testing.assert_allclose(found.log_partition, whole.log_partition, atol=2e-3)
