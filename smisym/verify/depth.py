"""Many layers: networks of as many as can be run, extrapolated, are the limit of infinitely many (theory, 2)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from smisym.declare.architecture import Architecture
from smisym.verify.chance import Verdict, groups, in_two_stages, means_vanish
from smisym.verify.properties import Property, Subject, Tried, left_out, prelude
from smisym.verify.tokens import draw_tokens, fields_of, rows_of, run_on_tokens, seen_by_link, slices_of

# Layers of a network at most, as declarations have it, and networks of each depth.
_DEEPEST, _NETWORKS = 48, 256


def copies_of(declared: Architecture) -> int:
    """How many copies share what each layer before the last does, so that twice as many are no network too deep."""
    return (_DEEPEST - 1) // (2 * max(len(declared.layers) - 1, 1))


def deeper(declared: Architecture, copies: int) -> Architecture:
    """Every layer before the last that often, its readouts shared out; no limit."""
    *first, last = declared.layers
    layers = [
        dataclasses.replace(layer, readout=tuple(o / copies for o in layer.readouts))
        for layer in first
        for _ in range(copies)
    ]
    return dataclasses.replace(declared, layers=(*layers, last), limit=None, noise=0.0)


def orthogonal_tokens(declared: Architecture, seed: int) -> np.ndarray:
    """Tokens X (T, D) with X X^T = D I on every slice, so that fields are standard normal at any D."""
    width, slices = 2 * declared.tokens, slices_of(declared)
    rng = np.random.default_rng(seed)
    parts = [np.linalg.qr(rng.standard_normal((width, declared.tokens)))[0].T for _ in range(slices)]
    return np.hstack(parts) * np.sqrt(width)


def depth_gaps(model: Any, count: int, seed: int) -> np.ndarray:
    """(count, n): outputs of networks with many layers, extrapolated to infinitely many, less what the link gives.

    The weights of the last layer are the same in all, those before it drawn anew; what is left of order 1 / L is taken
    out by twice the layers, of other weights.
    """
    declared, rng = model.architecture, np.random.default_rng(seed)
    X, (_, last) = orthogonal_tokens(declared, seed), draw_tokens(declared, 2 * declared.tokens, seed + 1)
    own = last[-model.fields :]
    copies = copies_of(declared)
    few, many = deeper(declared, copies), deeper(declared, 2 * copies)

    def run(network: Architecture) -> np.ndarray:
        W = rng.standard_normal((len(rows_of(network)), X.shape[1] // slices_of(declared)))
        W[-len(own) :] = own
        return run_on_tokens(network, X, W).astype(float).ravel()

    Z = fields_of(dataclasses.replace(declared, layers=declared.layers[-1:], limit=None), X, own)
    link = seen_by_link(declared, model.link(Z[None])[0], X).ravel()
    return np.array([2 * run(many) - run(few) - link for _ in range(count)])


def _many_layers_are_the_limit(subject: Subject, level: float) -> Tried:
    model, declared = subject.model, subject.model.architecture
    if not isinstance(declared, Architecture) or declared.limit != "ode":
        return left_out("finitely many layers: see mapping")
    if declared.layers[-1].activation == "hardmax":
        return left_out("the last attention jumps: its mean over weights does not tend to that of the limit in 1 / L")
    depth = copies_of(declared) * (len(declared.layers) - 1)
    if not depth:
        return left_out("too many layers are declared: none can be shared out")

    def test(stage: int, times: int) -> Verdict:
        number = subject.number("many layers", stage) % 2**31
        gaps = depth_gaps(model, subject.many(_NETWORKS) * times, number)
        # What extrapolation leaves is of second order, and what the rule of the limit does is 1e-5 (large_depth.py).
        found = means_vanish(groups(gaps), 1 / depth**2 + 1e-4)
        return Verdict(found.t, found.p, found.which, len(gaps), found.error, stage + 1)

    found = in_two_stages(test)
    body = (
        "from smisym.verify.depth import depth_gaps\n\n"
        f"gaps = depth_gaps(model, {found.number}, seed={subject.number('many layers', found.stage - 1) % 2**31})\n"
        "print(gaps.mean(axis=0), gaps.std(axis=0) / len(gaps) ** 0.5)  # zero, to its standard error"
    )
    holds = found.p >= level
    shown = "" if holds else f"{prelude(subject)}\n{body}"
    return Tried(found.number, "networks", found.t, found.p, holds, counterexample=shown)


PROPERTIES = (
    Property(
        "many-layers",
        "Networks of many layers on tokens, extrapolated in 1 / L, show what the link of infinitely many gives.",
        "smisym/link/large_depth.py; arXiv 2502.00901, A.4",
        "seconds",
        True,
        _many_layers_are_the_limit,
    ),
)
