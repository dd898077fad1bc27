"""Cuts of programs: what later fields see of earlier ones, against the whole program and by counting."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import sympy as sp
from cases import CASES, FAMILIES
from hypothesis import example, given, settings
from strategies import architectures

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.base.errors import InputError
from smisym.link.cut_programs import apart
from smisym.link.interfaces import Interface, entries_of, find_interfaces
from smisym.link.linking import LinkFunction, link_function
from smisym.link.program import Assign, Program, RowSoftmax, jumps

A = Attention
DECLARED: dict[str, Any] = {name: family.declared for name, family in FAMILIES.items()}
DECLARED |= {name: case.architecture for name, case in CASES.items()}


def link_of(declared: Any) -> LinkFunction:
    return link_function(declared, Derivation())


@pytest.mark.parametrize("name", DECLARED)
def test_a_program_in_two_is_the_whole(name: str) -> None:
    link = link_of(DECLARED[name])
    for interface in link.interfaces:
        assert apart(link.program, interface) <= 1
        read = {symbol for a in interface.behind.assigns for symbol in a.value.atoms(type(link.program.output))}
        assert not read & set(interface.earlier)
        # What jumps takes one of a few values.
        assert jumps(link.program) or interface.dimension > 0
        assert interface.dimension <= interface.numbers
        held(interface)


def held(interface: Interface) -> None:
    """What is said of rows and signs, and the dimension as the rank of finite differences at one point of its own."""
    before = entries_of(interface.before)
    Z = np.random.default_rng(3).standard_normal((64, interface.numbers))
    values, start = before(Z), 0
    for one in interface.carried:
        shape = tuple(map(int, one.symbol.shape))
        block = values[:, start : start + shape[0] * shape[1]].reshape(-1, *shape)
        start += shape[0] * shape[1]
        if one.row_sum is not None:
            np.testing.assert_allclose(block.sum(axis=2), float(one.row_sum), rtol=1e-12)
        assert not one.nonnegative or (block >= 0).all()
    z = 0.3 * Z[0]
    shift = 1e-5 * np.eye(len(z))
    slopes = (before(z + shift) - before(z - shift)) / 2e-5
    size = np.linalg.svd(slopes, compute_uv=False)
    assert (size > 1e-6 * size[0]).sum() <= interface.dimension


# Declaration, then (dimension, numbers of the fields before) of every cut.
KNOWN: list[tuple[Any, list[tuple[int, int]]]] = [
    (Architecture(2, (A(), A(), A())), [(2, 2), (2, 4)]),
    (Architecture(2, (A(),) * 5), [(2, 2), (2, 4), (2, 6), (2, 8)]),
    # Rows of softmaxes sum to constants: T (T - 1) numbers, or as many as the fields are.
    (Architecture(3, (A(), A(), A(), A())), [(3, 3), (6, 6), (6, 9)]),
    # Rank two is known up to a rotation.
    (Architecture(3, (A(rank=2), A(rank=2), A())), [(5, 6), (6, 12)]),
    # Untied, three queries and two differences of keys, up to a factor; and with three queries of the next layer.
    (Architecture(3, (A(tied=False), A(tied=False), A())), [(4, 6), (7, 9), (6, 12)]),
    (Architecture(3, (A(mask="causal"), A(mask="causal"), A())), [(3, 3), (3, 6)]),
    # Linear layers have T^2 numbers, in no compact set.
    (Architecture(2, (A(activation="linear"), A(), A())), []),
    (Architecture(2, (A(activation="linear", rank=2), A(), A())), [(3, 4), (4, 6)]),
    # Sums, term by term: rank two sees more than two tokens can show.
    (Architecture(2, (A(rank=2, heads=3), A())), [(2, 4), (2, 8), (2, 12)]),
    (Architecture(2, (A(),) * 4, limit="first_order"), [(2, 2), (2, 4), (2, 6)]),
    (Architecture(2, (A(tied=False),)), []),
    (SMI("z1*z2 + z3", 3), []),
]


@pytest.mark.parametrize(("declared", "sizes"), KNOWN)
def test_dimensions(declared: Any, sizes: list[tuple[int, int]]) -> None:
    assert [(i.dimension, i.numbers) for i in link_of(declared).interfaces] == sizes


def test_sums_are_one_case() -> None:
    """Behind all its terms, what passes is the additive statistic."""
    for declared in (Architecture(2, (A(heads=3), A())), Architecture(2, (A(),) * 5, limit="first_order")):
        link = link_of(declared)
        statistic = link.statistic
        assert statistic is not None
        last = [i for i in link.interfaces if i.numbers == len(statistic.rows) * link.tokens]
        assert [i.dimension for i in last] == [statistic.dimension]


def test_orders() -> None:
    program = link_of(Architecture(2, (A(heads=2), A()))).program
    first, second = find_interfaces(program), find_interfaces(program, (1, 0, 2))
    assert [i.dimension for i in first] == [i.dimension for i in second] == [2, 2]
    assert first[0].earlier[0].name == "h_1_1" and second[0].earlier[0].name == "h_1_2"
    # Seen from the end, later layers are no summary of anything.
    assert not find_interfaces(link_of(Architecture(2, (A(), A()))).program, (1, 0))
    with pytest.raises(InputError, match="every number from 0 to 2 once"):
        find_interfaces(program, (0, 0, 2))


def test_a_cut_can_be_cut_again() -> None:
    """Behind the first cut the program has the others: the same matrices pass, though they are told as any matrices."""
    program = link_of(Architecture(2, (A(), A(), A(skip=0.5), A()))).program
    first, *others = find_interfaces(program)
    again = find_interfaces(first.behind)
    assert [[one.symbol for one in i.carried] for i in again] == [[one.symbol for one in i.carried] for i in others]
    assert [i.dimension for i in again] == [4, 4]
    assert all(apart(first.behind, i) <= 1 for i in again)


def test_constants_and_names_of_a_program_of_ones_own() -> None:
    """What is computed of no field is on both sides of a cut; a name that is taken is not given again."""
    M = sp.MatrixSymbol
    a, b, x, y = M("C_1", 1, 2), M("b", 1, 2), M("x", 2, 2), M("y", 2, 2)
    one = sp.ImmutableDenseMatrix([[1, 1], [1, 1]])
    k = M("k", 2, 2)
    scores = RowSoftmax((a.T * a).doit())
    program = Program(
        (a, b),
        (Assign(k, one), Assign(x, k + scores + RowSoftmax((b.T * b).doit())), Assign(y, k + x * x.T)),
        y,
    )
    (found,) = find_interfaces(program)
    assert [one.symbol.name for one in found.carried] == ["C_2"]
    assert (found.dimension, found.carried[0].row_sum) == (2, 1)
    assert apart(program, found) <= 1


def test_the_derivation_says_so() -> None:
    steps = {step.title: step for step in smisym.compile(Architecture(2, (A(), A(), A()))).derivation}
    step = steps["What later fields see of earlier ones"]
    assert [f.note for f in step.formulas] == [
        "behind $h_{1}$: 2 numbers of 2; no entry is negative, and rows sum to 2",
        "behind $h_{1}, h_{2}$: 2 numbers of 4; no entry is negative, and rows sum to 4",
    ]
    assert len(step.checks) == 2
    assert "What later fields see of earlier ones" not in {s.title for s in smisym.compile(SMI("z1*z2", 2)).derivation}


# Derivatives in the first fields are beyond any float.
STEEP = Architecture(
    4, [A(skip=0.0, activation="linear", beta=4e97), A(skip=0.0, beta=4e5), A(activation="linear", beta=4e97)]
)


def test_dimensions_that_no_float_can_tell() -> None:
    """Behind four such layers not even the values are floats: nothing says that they are few."""
    interfaces = link_of(dataclasses.replace(STEEP, layers=[A(activation="linear", beta=1e100)] * 5)).interfaces
    assert all(0 < one.dimension < one.numbers for one in interfaces)


@given(architectures)
@example(STEEP)
@example(dataclasses.replace(STEEP, layers=[dataclasses.replace(layer, tied=False) for layer in STEEP.layers]))
@settings(max_examples=25, deadline=None)
def test_any_network_in_two_is_the_whole(declared: Architecture) -> None:
    link = link_of(dataclasses.replace(declared, noise=0))
    assert all(apart(link.program, interface) <= 1 for interface in link.interfaces)
