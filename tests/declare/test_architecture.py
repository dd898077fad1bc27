"""Declarations: what is accepted, what is refused and how, and that a declaration is a plain value."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from strategies import architectures

from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture, Attention


@given(architectures)
def test_repr_is_the_python_that_makes_it(architecture: Architecture) -> None:
    made = eval(repr(architecture), {"Architecture": Architecture, "Attention": Attention})
    assert made == architecture
    assert hash(made) == hash(architecture)
    assert made.digest == architecture.digest
    assert str(architecture) == repr(architecture)


def test_repr_leaves_out_defaults() -> None:
    assert repr(Attention()) == "Attention()"
    assert repr(Attention(skip=0.5, tied=False)) == "Attention(skip=0.5, tied=False)"
    assert repr(Architecture(tokens=3, layers=[Attention()], noise=0.1)) == (
        "Architecture(\n    tokens=3,\n    layers=(\n        Attention(),\n    ),\n    noise=0.1,\n)"
    )


@given(architectures, architectures)
def test_digest_tells_declarations_apart_exactly_when_they_differ(a: Architecture, b: Architecture) -> None:
    assert (a.digest == b.digest) == (a == b)
    assert len(a.digest) == 16


def test_digest_does_not_change_between_versions() -> None:
    # Files on disk name architectures by it.
    assert Architecture(2, (Attention(), Attention())).digest == "a12db5c41a506be2"


def test_numbers_become_plain() -> None:
    exotic = Architecture(
        tokens=np.int64(2),
        layers=[Attention(rank=np.int32(1), skip=np.float32(0.5), beta=Fraction(1, 2)), Attention(skip=sp.Integer(1))],
        noise=-0.0,
    )
    usual = Architecture(2, (Attention(skip=0.5, beta=0.5), Attention()))
    assert exotic == usual
    assert exotic.digest == usual.digest
    assert type(exotic.tokens) is type(exotic.layers[0].rank) is int
    assert type(exotic.layers[0].skip) is type(exotic.layers[0].beta) is type(exotic.noise) is float
    assert math.copysign(1.0, exotic.noise) == 1.0
    assert Attention(skip=1) == Attention(skip=1.0)
    assert repr(Attention(skip=2)) == repr(Attention(skip=2.0))


def test_frozen_and_usable_as_keys() -> None:
    architecture = Architecture(2, iter([Attention()]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        architecture.tokens = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        architecture.layers[0].skip = 2.0  # type: ignore[misc]
    assert {architecture: "found"}[Architecture(tokens=2, layers=(Attention(),))] == "found"
    changed = dataclasses.replace(architecture, tokens=4)
    assert changed.tokens == 4 and changed != architecture


def test_canonical_names_every_field() -> None:
    canonical = Architecture(2, (Attention(),)).canonical()
    assert set(canonical) == {f.name for f in dataclasses.fields(Architecture)}
    assert set(canonical["layers"][0]) == {f.name for f in dataclasses.fields(Attention)}


def test_what_is_not_compiled_yet_can_be_declared() -> None:
    layer = Attention(rank=3, skip=0, activation="linear", tied=False, heads=4)
    assert Architecture(tokens=5, layers=(layer,), output="sequence", noise=0.1).layers == (layer,)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("rank", "heads") for value in (0, -1, 1.0, True, "1", None, NAN, [1])],
        *[("skip", value) for value in (-1e-300, NAN, INF, -INF, "1", None, True, 1j, 10**400, np.zeros(2))],
        *[("beta", value) for value in (0, 0.0, -1, NAN, INF, "1", None, True, -(10**400))],
        *[("activation", value) for value in ("hardmx", "Softmax", "", None, 1, NAN, [])],
        *[("tied", value) for value in (0, 1, "true", None, NAN)],
        *[("readout", value) for value in (0, 0.0, "1", None, NAN)],
        *[("mask", value) for value in ("diagonal", "", 1)],
    ],
)
def test_bad_layers_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Attention(**{name: value})  # type: ignore[arg-type]
    assert caught.value.what == name
    assert caught.value.given is value
    assert caught.value.allowed and caught.value.fix


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("tokens", value) for value in (1, 0, -2, 2.0, True, "2", None, NAN)],
        *[("noise", value) for value in (-0.1, NAN, INF, "0", None, False, 1e-40, 1e-320)],
        *[("output", value) for value in ("Attention", "tokens", None, 3)],
        *[("layers", value) for value in ((), [], None, 2, Attention())],
    ],
)
def test_bad_architectures_are_refused(name: str, value: object) -> None:
    good = {"tokens": 2, "layers": (Attention(),)}
    with pytest.raises(InputError) as caught:
        Architecture(**{**good, name: value})  # type: ignore[arg-type]
    assert caught.value.what == name
    assert caught.value.allowed and caught.value.fix


@pytest.mark.parametrize("value", ["Attention", "ab", [Attention(), {"rank": 1}], {"rank": 1}])
def test_layers_must_be_attention(value: object) -> None:
    with pytest.raises(InputError, match=r"^layer \d: given"):
        Architecture(2, value)  # type: ignore[arg-type]


APART = ((False, True), (True, False))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"heads": 2, "readout": (1.0, 2.0, 3.0)}, "readout: given more than 2 numbers.*one number a head"),
        ({"rank_ratio": 0.5, "rank": 2}, "rank with rank_ratio: given 2.*leave out one of the two"),
        ({"rank_ratio": 0.5, "heads": 2}, "heads with rank_ratio: given 2.*leave heads out"),
        ({"rank_ratio": 0.5, "scale": "1/rank"}, "scale: given '1/rank'.*the rank grows: give a number"),
        ({"rank_ratio": 0, "tied": False, "mask": APART}, "tied with rank_ratio: given False.*a rank ratio > 0"),
        ({"rank_ratio": 1, "tied": False}, "tied with rank_ratio: given False.*hide the diagonal by a mask"),
        ({"activation": "log(2)"}, r"activation: given 'log\(2\)'.*use s in it, as in 'tanh\(s\)'"),
    ],
)
def test_layers_whose_parts_do_not_go_together_are_refused_with_what_to_change(
    layer: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        Attention(**layer)  # type: ignore[arg-type]


MATRIX = Attention(rank_ratio=0.5)


@pytest.mark.parametrize(
    ("tokens", "layers", "more", "words"),
    [
        (2, itertools.repeat(Attention()), {}, 'layers: given .*more than that many.*limit="ode"'),
        (13, (MATRIX,), {}, "tokens: given 13.*at most 12 where the rank is extensive.*declare fewer tokens"),
        (2, (MATRIX, Attention()), {}, "layers: given .*in all layers or in none.*declare all ranks finite"),
        (2, (MATRIX, Attention(rank_ratio=0)), {}, "layers: given .*one layer where rank_ratio is 0"),
        (2, (MATRIX, Attention(rank_ratio=1, tied=False, mask=APART)), {}, "layers: given .*leave tied out"),
        (2, (MATRIX, MATRIX), {"limit": "ode"}, "limit, statistic: given .*'ode'.*leave them out"),
    ],
)
def test_layers_that_do_not_go_together_are_refused_with_what_to_change(
    tokens: int, layers: Iterable[Attention], more: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        Architecture(tokens, layers, **more)  # type: ignore[arg-type]


COMPLEX = ["log(s)", "sqrt(s)", "s**0.5", "abs(log(s))", "1/(s - abs(s))", "sqrt(10 + s)", "log(20 - s)"]


@pytest.mark.parametrize("text", COMPLEX)
def test_complex_or_undefined_activations_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"complex-valued or undefined activation.* not at s = .*for example by abs"):
        Attention(activation=text)


@pytest.mark.parametrize("text", ["sin(s)**2 + cos(s)**2", "sign(s**2)", "(s + 1)**2 - s**2 - 2*s - 1", "1 + 1e-30*s"])
def test_constant_activations_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="depends on the score s"):
        Attention(activation=text)


REAL = [
    "log(1 + s**2)", "s/(1 + abs(s))", "relu(s)", "tanh(s)", "exp(s)", "exp(s**2)", "exp(s**2)/(1 + exp(s**2))", "s**3",
    "sign(s - 10)", "1e-20*s", "abs(s)**0.5", "sinh(s)", "max(s, 0)", "exp(-exp(s))", "log(abs(s) + 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", REAL)
def test_activations_that_are_real_on_the_real_line_are_accepted(text: str) -> None:
    assert Attention(activation=text).elementwise


def test_arrays_are_read_as_nested_lists() -> None:
    seen = np.tril(np.ones((2, 2), bool))
    listed = ((True, False), (True, True))
    assert Attention(mask=seen) == Attention(mask=list(seen)) == Attention(mask=listed)
    assert hash(Attention(mask=seen)) == hash(Attention(mask=listed))
    assert Attention(position=np.eye(2)) == Attention(position=((1, 0), (0, 1)))
    assert Attention(heads=2, readout=np.array([1.0, 2.0])) == Attention(heads=2, readout=(1.0, 2.0))
    assert Attention(readout=np.array(2.0)) == Attention(readout=2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mask", np.ones((2, 3), bool)),
        ("mask", np.ones(2, bool)),
        ("mask", np.ones((2, 2))),
        ("mask", np.zeros((0, 0), bool)),
        ("position", np.ones((2, 2), complex)),
        ("position", np.array(1.0)),
        ("position", ((0.0, 1e300), (0.0, 0.0))),
        ("position", ((0.0, -1e9), (0.0, 0.0))),
        ("skip", 2e6),
        ("readout", 1e300),
        ("readout", (1.0, -2e6)),
        ("readout", np.ones((2, 2))),
        ("readout", np.array([])),
    ],
)
def test_bad_arrays_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Attention(heads=2, **{name: value})  # type: ignore[arg-type]
    assert caught.value.what == name


def test_a_sequence_has_no_sum_of_heads() -> None:
    with pytest.raises(InputError, match=r"^combine: .*leave combine out"):
        Architecture(2, (Attention(heads=2),), output="sequence", combine="sum")
