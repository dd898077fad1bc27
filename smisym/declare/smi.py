"""Declarations by expressions: any sequence multi-index model ``y = f(Z)``.  Frozen plain values, as architectures."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.cards import Card, Shown
from smisym.base.errors import InputError, Words
from smisym.base.keywords import named
from smisym.declare.architecture import _changed, _put, digest_of
from smisym.declare.checking import checked_noise, checked_shape, unpacked, whole_number
from smisym.declare.describing import expressions_card
from smisym.declare.evaluating import evaluate, varies
from smisym.declare.expression_text import text_of
from smisym.declare.expressions import MAX_LENGTH, is_name, listing, parse

MAX_ENTRIES = 4096  # of Z: beyond, a slip of the keyboard fills the memory with symbols
MAX_OUTPUTS, MAX_CHARACTERS = 1024, 4 * MAX_LENGTH  # of all expressions together: each is read in seconds at most
_POINTS = 256
_SEED = 20260101
_SIZES = (0.1, 1.0, 10.0)  # of the fields at which a link must change: some change only far out


@named
@dataclass(frozen=True, repr=False)
class SMI(Shown):
    """A sequence multi-index model, its link given by expressions of the fields.

    expressions
        One for every output, at least one: arithmetic text (:func:`smisym.declare.expressions.parse`) or a sympy
        expression whose symbols are named as in text or come from :meth:`symbols`.  Held as a tuple of canonical texts.
    fields
        Names of the P rows of Z, distinct; an integer P stands for ``("z1", ..., "zP")``.
    tokens
        Number T of columns of Z, an integer >= 1.  A field of one token is written by its name, ``z1``; entry t of a
        field of several is ``z1[t]``, counted from 1.
    noise
        Variance of the Gaussian noise on every output, >= 1e-20, or 0, the noiseless channel.
    rank_ratio, aspect
        Given, the weights of the one field are the entries of a matrix S = U V / sqrt(r) (d, L) of extensive rank r =
        rank_ratio d, 0.001 to 1000, and L = aspect d, 0.01 to 100 (1 where it is left out); tokens are such matrices
        too, read row by row, and D = d L.  None, the default: independent weights.

    The link must be real and finite almost everywhere, and no expression a constant: it is tried at 256 random standard
    normal fields (also at larger and smaller ones, for being constant).  Every field must appear in some expression.
    Compared by value and hashable; its ``repr`` is the Python that makes it.
    Raises :class:`~smisym.base.errors.InputError`.
    """

    expressions: tuple[str, ...]
    fields: tuple[str, ...]
    tokens: int = 1
    noise: float = 0.0
    rank_ratio: float | None = None
    aspect: float | None = None

    def __post_init__(self) -> None:
        _put(self, "fields", _fields(self.fields))
        _put(self, "tokens", whole_number("tokens", self.tokens, 1))
        if len(self.fields) * self.tokens > MAX_ENTRIES:
            given = f"{len(self.fields)} fields of {self.tokens} tokens"
            raise InputError("fields", given, f"at most {MAX_ENTRIES} entries of Z", "declare fewer fields or tokens")
        _put(self, "noise", checked_noise(self.noise))
        ratio, aspect = checked_shape(self.rank_ratio, self.aspect, len(self.fields))
        _put(self, "rank_ratio", ratio)
        _put(self, "aspect", aspect)
        listed = _listed(self.expressions)
        _check_length(listed)
        _put(self, "expressions", tuple(self._canonical_text(k, given) for k, given in enumerate(listed, start=1)))
        self._try_out()
        self._check_used()

    def __repr__(self) -> str:
        texts = "".join(f"        {text!r},\n" for text in self.expressions)
        rest = "".join(f"    {text},\n" for text in _changed(self, skip=("expressions",)))
        return f"SMI(\n    expressions=(\n{texts}    ),\n{rest})"

    def card(self) -> Card:
        """What a notebook shows, as plain data."""
        return expressions_card(self)

    def canonical(self) -> dict[str, Any]:
        """Every value, defaults included, as plain JSON types: what files and digests hold; the shape of a matrix where
        there is one."""
        return {
            "kind": "smi",
            "fields": list(self.fields),
            "expressions": list(self.expressions),
            "tokens": self.tokens,
            "noise": self.noise,
        } | ({} if self.rank_ratio is None else {"rank_ratio": self.rank_ratio, "aspect": self.aspect})

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that name this declaration: SHA-256 of the canonical JSON."""
        return digest_of(self.canonical())

    def symbols(self) -> tuple[tuple[sp.Symbol, ...], ...]:
        """The real symbols that stand for the entries of Z, shape (P, T); their names are Python identifiers."""
        return _symbols(self.fields, self.tokens)

    def parsed(self) -> tuple[sp.Expr, ...]:
        """The link, (K,), in the symbols of :meth:`symbols`."""
        return tuple(self._parse(number, text) for number, text in enumerate(self.expressions, start=1))

    def _parse(self, number: int, text: str) -> sp.Expr:
        return _parsed(text, number, self.fields, self.tokens)

    def _canonical_text(self, number: int, given: object) -> str:
        if not isinstance(given, str | sp.Expr):
            fix = 'write arithmetic such as "relu(z1) - relu(z2)"'
            raise InputError(f"expression {number}", given, "a text or a sympy expression", fix)
        names = self._texts()
        expr = self._parse(number, given if isinstance(given, str) else _written(number, given, names))
        text = _written(number, expr, names)
        if not expr.free_symbols:
            allowed = f"an expression that depends on a field: {listing(dict.fromkeys(names.values()))}"
            raise InputError(f"expression {number}", given, allowed, "remove it, or write what it should depend on")
        # Read back at once, for what sympy multiplied out may have grown beyond the limits; twice, for powers of
        # numbers that it left apart may merge.
        for _ in range(2):
            text = _written(number, self._parse(number, text), names)
        return text

    def _texts(self) -> dict[str, str]:
        """Text of every entry of Z, by the names of symbols that stand for it."""
        texts: dict[str, str] = {}
        for name, row in zip(self.fields, self.symbols(), strict=True):
            for token, symbol in enumerate(row, start=1):
                text = name if self.tokens == 1 else f"{name}[{token}]"
                texts |= {symbol.name: text, text: text}
        return texts

    def _try_out(self) -> None:
        shape = (_POINTS, len(self.fields), self.tokens)
        Z = np.random.default_rng(_SEED).standard_normal(shape)
        values = {symbol: Z[:, p, t] for p, row in enumerate(self.symbols()) for t, symbol in enumerate(row)}
        names = self._texts()
        for number, expr in enumerate(self.parsed(), start=1):
            bad = np.flatnonzero(~np.isfinite(evaluate(expr, values)))
            if bad.size:
                used = sorted(expr.free_symbols, key=lambda symbol: symbol.name)
                point = ", ".join(f"{names[symbol.name]} = {values[symbol][bad[0]]:.4g}" for symbol in used)
                raise InputError(
                    f"expression {number}", f"{self.expressions[number - 1]} (complex-valued or undefined link)",
                    f"real and finite at every field; this one is not at {point}",
                    "keep the arguments of log, sqrt and fractional powers positive, for example by abs",
                )  # fmt: skip
            wide = {symbol: np.concatenate([size * values[symbol] for size in _SIZES]) for symbol in expr.free_symbols}
            if not varies(expr, wide):
                raise InputError(
                    f"expression {number}", f"{self.expressions[number - 1]} (the same at all fields tried)",
                    f"an expression that depends on a field: {listing(dict.fromkeys(names.values()))}",
                    "remove it, or write what it should depend on",
                )  # fmt: skip

    def _check_used(self) -> None:
        """No output shows a field that no expression has: it is a slip, and would only widen every integral."""
        used = {symbol for expr in self.parsed() for symbol in expr.free_symbols}
        for name, row in zip(self.fields, self.symbols(), strict=True):
            if used.isdisjoint(row):
                raise InputError(
                    "fields", name, "fields that appear in some expression", f"use {name} in one, or leave it out"
                )


@functools.lru_cache(maxsize=8)
def _symbols(fields: tuple[str, ...], tokens: int) -> tuple[tuple[sp.Symbol, ...], ...]:
    return tuple(tuple(sp.Symbol(f"{name}__0_{token}", real=True) for token in range(tokens)) for name in fields)


# One declaration reads its own texts several times.
@functools.lru_cache(maxsize=2 * MAX_OUTPUTS)
def _parsed(text: str, number: int, fields: tuple[str, ...], tokens: int) -> sp.Expr:
    rows = zip(fields, _symbols(fields, tokens), strict=True)
    variables = {name: row[0] if tokens == 1 else row for name, row in rows}
    return parse(text, variables, what=f"expression {number}")


def _written(number: int, expr: sp.Expr, names: dict[str, str]) -> str:
    try:
        return text_of(expr, names)
    except InputError as error:
        raise InputError(f"expression {number}", error.given, error.allowed, error.fix) from None


def _listed(value: object) -> tuple[object, ...]:
    value = unpacked(value)
    if isinstance(value, str | sp.Expr):
        return (value,)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | Set):
        raise InputError("expressions", value, "a text, or a sequence of texts", 'write expressions=("z1 * z2",)')
    listed = tuple(itertools.islice(value, MAX_OUTPUTS + 1))
    if not listed:
        raise InputError("expressions", value, "at least one expression", 'write expressions=("z1 * z2",)')
    return listed


def _check_length(expressions: tuple[object, ...]) -> None:
    """Refuse at once what would take minutes to read."""
    fix = "declare fewer outputs, or shorter ones"
    if len(expressions) > MAX_OUTPUTS:
        raise InputError("expressions", Words(f"more than {MAX_OUTPUTS} of them"), f"at most {MAX_OUTPUTS}", fix)
    length = sum(len(text) for text in expressions if isinstance(text, str))
    if length > MAX_CHARACTERS:
        allowed = f"at most {MAX_CHARACTERS} in all expressions together"
        raise InputError("expressions", Words(f"{length} characters"), allowed, fix)


def _fields(value: object) -> tuple[str, ...]:
    allowed = "distinct names of letters, digits and underscores, other than Python's keywords, functions and pi"
    fix = 'write fields=("z1", "z2"), or fields=2 for just these names'
    value = unpacked(value)
    if isinstance(value, Mapping | Set):
        raise InputError("fields", value, f"a sequence of names; {allowed}", fix)
    if isinstance(value, str) or not isinstance(value, Iterable):
        count = _count(value, f"an integer >= 1, or {allowed}", fix)
        return tuple(f"z{p}" for p in range(1, count + 1))
    names = tuple(itertools.islice(value, MAX_ENTRIES + 1))
    if not names:
        raise InputError("fields", value, "at least one field", fix)
    if len(names) > MAX_ENTRIES:
        given = Words(f"more than {MAX_ENTRIES} fields")
        raise InputError("fields", given, f"at most {MAX_ENTRIES}", "declare fewer fields")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not is_name(name) or name in seen:
            raise InputError("fields", name, allowed, fix)
        seen.add(name)
    return tuple(map(str, names))


def _count(value: object, allowed: str, fix: str) -> int:
    try:
        count = whole_number("fields", value, 1)
    except InputError:
        raise InputError("fields", value, allowed, fix) from None
    if count > MAX_ENTRIES:
        raise InputError("fields", value, f"at most {MAX_ENTRIES}", "declare fewer fields")
    return count
