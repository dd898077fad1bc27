"""Declarations in formulas and words: what a notebook shows of them.

They are read as they are, without their classes, which are made with this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import sympy as sp

from smisym.base.cards import Card, Cell, Listing, listed
from smisym.base.derivation import Formula

# Kinds of layers that are written out (neighbours that are equal share a line), and outputs of expressions.
_MOST, _MOST_OUTPUTS = 8, 12
_NAMES = {"softmax": r"\mathrm{softmax}", "hardmax": r"\mathrm{hardmax}"}


def network_card(network: Any) -> Card:
    """Of an :class:`~smisym.Architecture`."""
    runs = list(_runs(network.layers))
    formulas = [_scores(network.layers)]
    for first, last, layer in runs[:_MOST]:
        shown = last == len(network.layers)
        formulas += [_mixing(first, last - shown, layer)] if last - shown >= first else []
        formulas += [_output(network, layer)] if shown else []
    facts: list[tuple[str, Cell]] = [("tokens", f"$T = {network.tokens}$"), ("layers", str(len(network.layers)))]
    facts.append(("observed", _observed(network)))
    if network.limit:
        limits = {"first_order": "first order in the readouts", "ode": "many layers, as a differential equation"}
        facts.append(("limit", limits[network.limit]))
    if network.head_layout == "split":
        facts.append(("heads", "each on its own slice of the embedding"))
    if network.statistic != "exact":
        facts.append(("posterior", "the sum that the output shows is taken for Gaussian"))
    notes = () if len(runs) <= _MOST else (f"Formulas of the first {_MOST} of {len(runs)} kinds of layers.",)
    return Card("Attention network", "", tuple(facts), tuple(formulas), _table(runs[:_MOST]), None, notes)


def layers_in_words(network: Any) -> str:
    """The layers of an :class:`~smisym.Architecture` and its noise, as declared, in sentences of a document."""
    told = []
    runs = list(_runs(network.layers))
    for first, last, layer in runs[:_MOST]:
        which = f"Layer {first}" if first == last else f"Layers {first} to {last}, each"
        told.append(f"{which}: {', '.join(_declared(layer))}.")
    told += ["The others are in the declaration at the end."] if len(runs) > _MOST else []
    return " ".join([*told, noise_in_words(network.noise)])


def noise_in_words(noise: float) -> str:
    """The noise of the output, in a sentence of a document."""
    return f"The output has Gaussian noise of variance ${_number(noise)}$." if noise else "There is no noise."


def _declared(layer: Any) -> Iterator[str]:
    yield f"rank {layer.rank}" if layer.rank_ratio is None else f"rank ratio ${_number(layer.rank_ratio)}$"
    if layer.heads > 1:
        yield f"{layer.heads} heads"
    yield f"keys and queries {'tied' if layer.tied else 'untied'}"
    yield f"activation {layer.activation}"
    yield f"skip ${_number(layer.skip)}$"
    for name, value in (("beta", layer.beta), ("scale", layer.scale)):
        if value != 1:
            yield f"{name} ${_number(value)}$"
    if set(layer.readouts) != {1.0}:
        several = len(set(layer.readouts)) > 1
        shown = ", ".join(f"${_number(value)}$" for value in (layer.readouts if several else layer.readouts[:1]))
        yield f"readout{'s' * several} {shown}"
    if layer.mask is not None:
        yield "causal mask" if layer.mask == "causal" else "a mask of its own"
    if layer.position is not None:
        yield "positional scores"


def expressions_card(model: Any) -> Card:
    """Of an :class:`~smisym.SMI`."""
    symbols, outputs = _printed(model), model.parsed()
    formulas = tuple(
        Formula(f"y_{{{number}}}" if len(outputs) > 1 else "y", expr.xreplace(symbols))
        for number, expr in enumerate(outputs[:_MOST_OUTPUTS], start=1)
    )
    facts = [("fields", listed(model.fields)), ("tokens", str(model.tokens)), ("outputs", str(len(outputs)))]
    if model.noise:
        facts.append(("noise", f"Gaussian, of variance {model.noise:g}"))
    if model.rank_ratio is not None:
        facts.append(("weights", f"a matrix of rank ratio {model.rank_ratio:g} and aspect {model.aspect:g}"))
    notes = (f"The first {_MOST_OUTPUTS} of {len(outputs)} outputs.",) * (len(outputs) > _MOST_OUTPUTS)
    return Card("Sequence multi-index model", facts=tuple(facts), formulas=formulas, notes=notes)


def _printed(model: Any) -> dict[sp.Symbol, sp.Symbol]:
    """Symbols of the fields as people write them: z1 as z_1, entry t of several as z_{1,t}; whole names where these
    would meet."""
    stems = [_stem(name) for name in model.fields]
    if len(set(stems)) < len(stems):
        stems = [(_upright(name), "") for name in model.fields]
    found = {}
    for (stem, index), row in zip(stems, model.symbols(), strict=True):
        for token, symbol in enumerate(row, start=1):
            indices = ",".join(filter(None, (index, str(token) if model.tokens > 1 else "")))
            found[symbol] = sp.Symbol(f"{stem}_{{{indices}}}" if indices else stem, real=True)
    return found


def _stem(name: str) -> tuple[str, str]:
    """A name cut before the digits that it ends in."""
    stem = name.rstrip("0123456789")
    index, stem = name[len(stem) :], stem.rstrip("_")
    if not stem:
        return _upright(name), ""
    return stem if len(stem) == 1 else _upright(stem), index


def _upright(name: str) -> str:
    return rf"\mathrm{{{name}}}".replace("_", r"\_")


def layer_facts(layer: Any) -> tuple[tuple[str, Cell], ...]:
    """Of an :class:`~smisym.Attention`: what differs from the plainest layer."""
    return tuple((name, value) for name, value in zip(_HEAD[1:], _words(layer), strict=True) if value)


def layer_formulas(layer: Any) -> tuple[Formula, ...]:
    """The scores of a layer, and what it does to the tokens."""
    return _scores((layer,)), _mixing(1, 1, layer)


def _runs(layers: tuple[Any, ...]) -> Iterator[tuple[int, int, Any]]:
    """(first, last, layer) of neighbours that are equal, counted from 1."""
    number = 1
    for layer, equal in itertools.groupby(layers):
        count = len(list(equal))
        yield number, number + count - 1, layer
        number += count


def _scores(layers: tuple[Any, ...]) -> Formula:
    tied = all(layer.tied for layer in layers)
    heads = any(layer.heads > 1 for layer in layers)
    a = "^{a}" if heads else ""
    first, second = (f"W_\\ell{a}", f"W_\\ell{a}") if tied else (f"Q_\\ell{a}", f"K_\\ell{a}")
    first = f"({first})" if heads else first
    note = "scores of every head $a$" if heads else "scores"
    mixed = "" if tied or not any(layer.tied for layer in layers) else "; where tied, $Q = K = W$"
    right = rf"\tfrac{{1}}{{D}} X_{{\ell-1}} {first}^{{\top}} {second} X_{{\ell-1}}^{{\top}}"
    return Formula(rf"S_\ell{a}", right, note + mixed)


def _mixing(first: int, last: int, layer: Any) -> Formula:
    index = str(first) if first == last else r"\ell"
    before = str(first - 1) if first == last else r"\ell - 1"
    skip = "" if not layer.skip else "I" if layer.skip == 1 else rf"{_number(layer.skip)}\, I"
    inner = " + ".join(filter(None, (skip, _attended(layer, index))))
    bracket = rf"\left({inner}\right)" if skip or layer.heads > 1 else inner
    note = "" if first == last else f"layers {first} to {last}"
    return Formula(f"X_{{{index}}}", rf"{bracket} X_{{{before}}}", note)


def _output(network: Any, layer: Any) -> Formula:
    number = len(network.layers)
    noise = rf" + \sqrt{{{_number(network.noise)}}}\, \xi" if network.noise else ""
    if network.output == "sequence":
        own = _mixing(number, number, layer)
        return Formula("y", f"{own.right}{noise}", "the tokens of the last layer")
    if layer.heads > 1 and network.combine == "stack":
        right = rf"\left({_activated(layer, f'S_{{{number}}}^{{a}}')}\right)_{{a = 1, \dots, {layer.heads}}}"
        return Formula("y", right + noise, "the attention matrices of the last layer")
    summed = _attended(layer, str(number)) if layer.heads > 1 else _activated(layer, f"S_{{{number}}}")
    return Formula("y", summed + noise, "the attention matrix of the last layer")


def _attended(layer: Any, index: str) -> str:
    """The attention of all heads with their readouts."""
    readouts = layer.readouts
    same = len(set(readouts)) == 1
    head = "^{a}" if layer.heads > 1 else ""
    one = _activated(layer, f"S_{{{index}}}{head}")
    if layer.heads > 1:
        factor = ("" if readouts[0] == 1 else rf"{_number(readouts[0])} ") if same else "o_a "
        return rf"{factor}\sum_{{a=1}}^{{{layer.heads}}} {one}"
    return one if readouts[0] == 1 else rf"{_number(readouts[0])}\, {one}"


def _activated(layer: Any, scores: str) -> str:
    beta = "" if layer.beta == 1 else rf"{_number(layer.beta)}\, "
    scale = "" if layer.scale == 1 else rf"{_number(layer.scale)}\, "
    inside = f"{beta}{scale}{scores}" + (" + P" if layer.position is not None else "")
    if layer.activation == "linear":
        return f"({inside})" if layer.position is not None else inside
    name = _NAMES.get(layer.activation, r"\sigma") + (r"_{M}" if layer.mask is not None else "")
    return rf"{name}\left({inside}\right)"


def _number(value: float) -> str:
    text = f"{value:g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}"


def _observed(network: Any) -> str:
    what = {"attention": "attention of the last layer", "sequence": "tokens of the last layer"}[network.output]
    if network.output == "attention" and network.layers[-1].heads > 1:
        what += ", summed over heads" if network.combine == "sum" else ", head by head"
    return what + (f", with noise of variance {network.noise:g}" if network.noise else ", without noise")


_HEAD = ("layer", "rank", "heads", "keys and queries", "activation", "mask", "position")


def _words(layer: Any) -> tuple[str, ...]:
    mask = layer.mask if isinstance(layer.mask, str) else "a table" if layer.mask is not None else ""
    activation = rf"$\sigma(s)$ = {layer.activation}" if layer.elementwise else layer.activation
    return (
        str(layer.rank), str(layer.heads), "tied" if layer.tied else "untied", activation, mask,
        "a table" if layer.position is not None else "",
    )  # fmt: skip


def _table(runs: list[tuple[int, int, Any]]) -> Listing:
    rows = [(str(a) if a == b else f"{a} to {b}", *_words(layer)) for a, b, layer in runs]
    used = [column for column in range(len(_HEAD)) if any(row[column] for row in rows)]
    return Listing(tuple(_HEAD[c] for c in used), tuple(tuple(row[c] for c in used) for row in rows))
