"""Models by expressions: what is accepted, what is refused and how, and that a declaration is a plain value."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import sympy as sp

from smisym.base.errors import InputError
from smisym.declare.smi import SMI

SINGLE = SMI(["relu(z1) - 0.5*z2", "z1*z2/(2*(1 + z1**2))"], 2, noise=0.1)
SEVERAL = SMI("q[2]*tanh(k[1]) + q[1]", ["q", "k"], tokens=2)


@pytest.mark.parametrize("smi", [SINGLE, SEVERAL])
def test_a_plain_value(smi: SMI) -> None:
    made = eval(repr(smi), {"SMI": SMI})
    assert made == smi and hash(made) == hash(smi) and made.digest == smi.digest
    assert dataclasses.replace(smi) == smi
    with pytest.raises(dataclasses.FrozenInstanceError):
        smi.tokens = 3  # type: ignore[misc]
    canonical = smi.canonical()
    assert list(canonical) == ["kind", "fields", "expressions", "tokens", "noise"] and canonical["kind"] == "smi"
    assert json.loads(json.dumps(canonical)) == canonical
    assert len({smi.digest, dataclasses.replace(smi, noise=7).digest, SMI("z1", 1).digest}) == 3


def test_repr_leaves_out_defaults() -> None:
    assert repr(SMI("z1", 1)) == "SMI(\n    expressions=(\n        'z1',\n    ),\n    fields=('z1',),\n)"


def test_digest_does_not_change_between_versions() -> None:
    # Files on disk name declarations by it.
    assert SMI("relu(z1) - relu(z2)", 2).digest == "fcaf700d86ac9017"


def test_equal_however_it_is_written() -> None:
    z1, z2 = sp.symbols("z1 z2")
    usual = SMI(("z1/2 + z2**2",), ("z1", "z2"))
    assert SMI("z2*z2 + 0.5*z1", 2) == usual
    assert SMI(z1 / 2 + z2**2, np.int64(2), noise=0) == usual  # type: ignore[arg-type]
    assert SMI([0.5 * z1 + z2**2], iter(["z1", "z2"]), tokens=1) == usual  # type: ignore[arg-type]
    assert usual.expressions == ("z1/2 + z2**2",)
    assert usual != SMI("z1/2 + z2**2", ("z1", "z2"), tokens=1, noise=1)
    assert SMI("a", np.array(["a"])) == SMI("a", [np.str_("a")]) == SMI(np.array(["a"]), ("a",))  # type: ignore[arg-type]
    assert repr(SMI("a", [np.str_("a")])) == repr(SMI("a", ("a",)))
    assert SMI("z1", np.array(1)) == SMI("z1", 1)  # type: ignore[arg-type]


def test_symbols_are_real_identifiers_of_shape_fields_by_tokens() -> None:
    symbols = SEVERAL.symbols()
    assert [[s.name for s in row] for row in symbols] == [["q__0_0", "q__0_1"], ["k__0_0", "k__0_1"]]
    assert all(s.is_real and s.name.isidentifier() for row in symbols for s in row)
    (q1, q2), (k1, _) = symbols
    assert SEVERAL.parsed() == (q2 * sp.tanh(k1) + q1,)


@pytest.mark.parametrize("smi", [SINGLE, SEVERAL])
def test_parsed_expressions_may_be_declared_again(smi: SMI) -> None:
    assert dataclasses.replace(smi, expressions=smi.parsed()) == smi  # type: ignore[arg-type]


def test_parsed_links_are_the_declared_functions() -> None:
    (z1,), (z2,) = SINGLE.symbols()
    a, b = np.random.default_rng(1).standard_normal((2, 20))
    first, second = (sp.lambdify([z1, z2], expr, ["numpy", "scipy"]) for expr in SINGLE.parsed())
    np.testing.assert_allclose([first(*pair) for pair in zip(a, b, strict=True)], np.maximum(a, 0) - b / 2, rtol=1e-14)
    np.testing.assert_allclose(second(a, b), a * b / (2 * (1 + a**2)), rtol=1e-14)


@pytest.mark.parametrize(
    ("expressions", "fields", "words"),
    [
        ("log(z1)", 1, ["expression 1", "log(z1)", "complex-valued or undefined link", "at z1 = -", "by abs"]),
        ("sqrt(z1 + z2)", 2, ["complex-valued or undefined", "z1 = ", "z2 = "]),
        ("z1**(1/3)", 1, ["complex-valued or undefined"]),
        ("(-1)**z1", 1, ["complex-valued or undefined"]),
        ("abs(log(z1))", 1, ["complex-valued or undefined"]),
        ("1/(z1 - abs(z1))", 1, ["complex-valued or undefined"]),
        ("exp(exp(z1**2)**9)", 1, ["real and finite at every field"]),
        (["z1", "3"], 1, ["expression 2", "'3'", "depends on a field: z1"]),
        ("z1 - z1 + pi", 1, ["depends on a field"]),
        ("sin(z1)**2 + cos(z1)**2", 1, ["expression 1", "depends on a field", "the same at all fields"]),
        ("sign(z1**2)", 1, ["depends on a field: z1"]),
        (["z1", "(z1 + 1)**2 - z1**2 - 2*z1 - 1"], 1, ["expression 2", "depends on a field"]),
        ("x", 1, ["expression 1", "To fix: use one of these names"]),
        ("exp(x)", 1, ["expression 1", "To fix: use one of these names"]),
        ("sgn(z1)", 1, ['write "sign"']),
        ({"a": 1}, ["a"], ["expressions", "a sequence of texts"]),
        ("z1", 2, ["fields", "'z2'", "appear in some expression", "leave it out"]),
        ("a*c", ["a", "b", "c"], ["fields", "'b'"]),
        ("z3", 2, ["expression 1", 'write "z2"']),
        ("z1[1]", 1, ["z1 without an index"]),
        ("sqrt(-1)*z1", 1, ["'sqrt(-1)'"]),
        ("__import__('os').system('true')", 1, ["calls of exp"]),
        ((), 1, ["expressions", "at least one expression"]),
        (3, 1, ["expressions", "a sequence of texts"]),
        (None, 1, ["expressions", "a sequence of texts"]),
        ([3], 1, ["expression 1", "a text or a sympy expression"]),
        ([None], 1, ["expression 1", "a text or a sympy expression"]),
        (sp.Symbol("w"), 1, ["expression 1", "'w'"]),
        (sp.gamma(sp.Symbol("z1")), 1, ["expression 1", "gamma(z1)", "calls of exp"]),
        (sp.I * sp.Symbol("z1"), 1, ["expression 1", "rewrite this part"]),
        # What sympy multiplies out of this is too long to be read back.
        ("+".join(f"(1234567*z{p})**40" for p in range(1, 40)), 39, ["expression 1", "at most 8000 characters"]),
    ],
)
def test_bad_expressions_are_refused(expressions: object, fields: int, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        SMI(expressions, fields)  # type: ignore[arg-type]
    assert "To fix: " in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [0, -1, True, 1.0, None, 10**9, "z1", [], [""], ["1z"], ["a b"], ["lambda"], ["None"], ["sin"], ["relu"], ["pi"],
     ["é"], [3], {"z1": 1}, {"z1"}, ["z1", "z2", "z1"], ["__import__('os')"], ["z[1]"]],
)  # fmt: skip
def test_bad_fields_are_refused(fields: object) -> None:
    with pytest.raises(InputError, match=r"^fields: given .*To fix: (write fields=|declare fewer)"):
        SMI("z1", fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("tokens", value) for value in (0, -1, 1.0, True, "1", None)],
        *[("noise", value) for value in (-0.1, float("nan"), float("inf"), "0", None, False, 1e-40)],
    ],
)
def test_bad_numbers_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        SMI(**{"expressions": "z1", "fields": 1, name: value})
    assert caught.value.what == name


def test_too_many_entries_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="at most 4096 entries"):
        SMI("z1[1]", 1, tokens=10**12)


def test_entries_must_be_indexed_where_there_are_several() -> None:
    with pytest.raises(InputError, match=r"z1\[1\] to z1\[2\]"):
        SMI("z1", 1, tokens=2)
    with pytest.raises(InputError, match=r"z1\[1\] to z1\[2\]"):
        SMI("z1[3]", 1, tokens=2)
    with pytest.raises(InputError, match=r"z1\[1\] to z1\[2\]"):
        SMI(sp.Symbol("z1"), 1, tokens=2)


@pytest.mark.parametrize("text", ["sign(z1 - 6)", "1e-20*(z1 + 1)", "z1 + 1e6", "exp(-z1**2)", "max(z1 - 8, 0)"])
def test_links_that_hardly_change_are_no_constants(text: str) -> None:
    assert SMI(text, 1).fields == ("z1",)
