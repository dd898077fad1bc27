"""The canonical symbols, with their assumptions, in one place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import sympy as sp

# One score of an attention layer, in expressions of a user's own activation.
SCORE = sp.Symbol("s", real=True)


def field(layer: int, rank: int, tokens: int, role: str = "", head: int = 0) -> sp.MatrixSymbol:
    """Fields of one head of a layer, ``h_l`` of shape (rank, tokens); ``role`` is "q" or "k" for untied weights.

    Heads are numbered from 1; 0 stands for the only head and is not written.
    """
    return sp.MatrixSymbol(f"h{role}_{layer}{_suffix(head)}", rank, tokens)


def scores_vector(layer: int, rank: int, tokens: int, role: str = "", head: int = 0) -> sp.MatrixSymbol:
    """Mixed fields ``U_l = B_{l-1} h_l^T`` of shape (tokens, rank)."""
    return sp.MatrixSymbol(f"U{role}_{layer}{_suffix(head)}", tokens, rank)


def indices(layer: int, tokens: int) -> sp.MatrixSymbol:
    """Scores ``H_l`` of shape (tokens, tokens) of a layer whose fields are its entries."""
    return sp.MatrixSymbol(f"H_{layer}", tokens, tokens)


def layer_matrix(layer: int, tokens: int, stream: int = 0) -> sp.MatrixSymbol:
    """One layer's mixing ``A_l = c I + sigma(...)``, (tokens, tokens)."""
    return sp.MatrixSymbol(f"A_{layer}{_suffix(stream)}", tokens, tokens)


def mixing(layer: int, tokens: int, stream: int = 0) -> sp.MatrixSymbol:
    """Accumulated mixing ``B_l``, (tokens, tokens), with X_l = B_l X_0."""
    return sp.MatrixSymbol(f"B_{layer}{_suffix(stream)}", tokens, tokens)


def statistic(tokens: int, stream: int = 0) -> sp.MatrixSymbol:
    """Sum of what the layers before the last add to the tokens, (tokens, tokens): the committee's statistic."""
    return sp.MatrixSymbol(f"S{_suffix(stream)}", tokens, tokens)


def output(tokens: int, head: int = 0) -> sp.MatrixSymbol:
    """The output ``y``, (tokens, tokens), or the part of it that one head shows."""
    return sp.MatrixSymbol(f"y{_suffix(head)}", tokens, tokens)


def _suffix(head: int) -> str:
    return f"_{head}" if head else ""


def entry(matrix: sp.MatrixSymbol, row: int, column: int) -> sp.Symbol:
    """The real scalar that stands for one entry of a matrix symbol in straight-line code."""
    return sp.Symbol(f"{matrix.name}__{row}_{column}", real=True)


def as_declared(text: str, matrices: Iterable[sp.MatrixSymbol]) -> str:
    """The text with entries as a declaration writes them: z on one token, z[2] on several, h[1, 2] of several rows."""
    named = {str(matrix.name): (int(matrix.shape[0]), int(matrix.shape[1])) for matrix in matrices}

    def written(found: re.Match[str]) -> str:
        name, row, column = found[1], int(found[2]), int(found[3])
        if name not in named:
            return found[0]
        rows, columns = named[name]
        inside = [str(row + 1)] * (rows > 1) + [str(column + 1)] * (columns > 1)
        return f"{name}[{', '.join(inside)}]" if inside else name

    return re.sub(r"\b([A-Za-z]\w*?)__(\d+)_(\d+)\b", written, text)


def entry_latex(matrix: sp.MatrixSymbol, row: int, column: int) -> str:
    """The same entry as documents show it: indices count from 1, a row or column has one of them, a number none."""
    rows, columns = matrix.shape
    if rows == columns == 1:
        return str(sp.latex(matrix))
    both = [str(row + 1), str(column + 1)]
    return indexed(sp.latex(matrix), both[1:] if rows == 1 else both[:1] if columns == 1 else both)


def indexed(name: str, indices: Sequence[str]) -> str:
    """The LaTeX of a name with indices behind those that it has."""
    joined = ("" if all(len(index) == 1 for index in indices) else ",").join(indices)
    plain = re.fullmatch(r"(.+)_\{(\w+)\}", name)
    return f"{plain[1]}_{{{plain[2]},{joined}}}" if plain else f"{name}_{{{joined}}}"
