"""The canonical symbols, with their assumptions, in one place."""

from __future__ import annotations

import sympy as sp


def field(layer: int, rank: int, tokens: int, role: str = "") -> sp.MatrixSymbol:
    """Fields of one layer, ``h_l`` of shape (rank, tokens); ``role`` is "q" or "k" for untied weights."""
    return sp.MatrixSymbol(f"h{role}_{layer}", rank, tokens)


def scores_vector(layer: int, rank: int, tokens: int, role: str = "") -> sp.MatrixSymbol:
    """Mixed fields ``U_l = B_{l-1} h_l^T`` of shape (tokens, rank)."""
    return sp.MatrixSymbol(f"U{role}_{layer}", tokens, rank)


def layer_matrix(layer: int, tokens: int) -> sp.MatrixSymbol:
    """One layer's mixing ``A_l = c I + sigma(...)``, (tokens, tokens)."""
    return sp.MatrixSymbol(f"A_{layer}", tokens, tokens)


def mixing(layer: int, tokens: int) -> sp.MatrixSymbol:
    """Accumulated mixing ``B_l``, (tokens, tokens), with X_l = B_l X_0."""
    return sp.MatrixSymbol(f"B_{layer}", tokens, tokens)


def output(tokens: int) -> sp.MatrixSymbol:
    """The output ``y``, (tokens, tokens)."""
    return sp.MatrixSymbol("y", tokens, tokens)


def entry(matrix: sp.MatrixSymbol, row: int, column: int) -> sp.Symbol:
    """The real scalar that stands for one entry of a matrix symbol in straight-line code."""
    return sp.Symbol(f"{matrix.name}__{row}_{column}", real=True)
