"""Architecture into program: the mixing recursion of attention, head by head.

    U_l = B_{l-1} h_l^T,    A_l = c I + sum_a o_a sigma(beta U_l^a U_l^aT),    B_l = A_l B_{l-1},    B_0 = I

(arXiv 2502.00901, eqs 2-7 and appendix A; tokens are rows).  Mixing commutes with the projection on weights,
X_l w = B_l (X_0 w), which is why fields of the *input* suffice.  Heads that share the embedding mix it together;
heads with a slice of it each have a recursion of their own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym.base import symbols
from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.describing import layers_in_words
from smisym.declare.expressions import parse
from smisym.kernels.named import MAX_TOKENS
from smisym.link.large_depth import limiting_mixing
from smisym.link.program import Assign, Elementwise, Program, RowHardmax, RowSoftmax

# Rows of Z up to which the recursion is written entry by entry: beyond, nobody reads it and sympy takes minutes.
_READABLE_ROWS = 24
PAPER = "arXiv 2502.00901, eqs 2-7 and appendix A"


@dataclass(frozen=True)
class Row:
    """One row of the fields: its input in the program, layer and head (from 1), slice of the embedding, plain name.

    rank_ratio: of the matrix that it is linear in, None for the products of tokens with one vector.  aspect: L / d of
    such a matrix (d, L) whose products with matrices it holds, None where its entries between tokens are held.  tied:
    whether such a matrix is symmetric.
    """

    input: int
    layer: int
    head: int
    slice: int
    label: str
    rank_ratio: float | None = None
    aspect: float | None = None
    tied: bool = True


@dataclass
class _Build:
    """What has been built so far; ``mixing`` has one accumulated mixing a stream (one, or one a slice)."""

    architecture: Architecture
    mixing: list[MatrixExpr]
    inputs: list[sp.MatrixSymbol]
    assigns: list[Assign]
    rows: list[Row]

    @property
    def tokens(self) -> int:
        return self.architecture.tokens

    @property
    def split(self) -> bool:
        return len(self.mixing) > 1

    def assign(self, target: sp.MatrixSymbol, value: MatrixExpr) -> sp.MatrixSymbol:
        self.assigns.append(Assign(target, value))
        return target


def build_program(architecture: Architecture) -> tuple[Program, tuple[Row, ...]]:
    """The program of an architecture and its rows: layer by layer, head by head, query before key, then rank."""
    T = architecture.tokens
    if T > MAX_TOKENS:
        raise InputError("tokens", T, f"at most {MAX_TOKENS} for a compiled link", "use fewer tokens")
    streams = architecture.layers[0].heads if architecture.head_layout == "split" else 1
    build = _Build(architecture, [sp.Identity(T)] * streams, [], [], [])
    *inner, last = architecture.layers
    if architecture.limit == "ode":
        build.mixing = [limiting_mixing(T, tuple(inner))]
    elif architecture.limit == "first_order":
        _committee(build, inner)
    else:
        for number, layer in enumerate(inner, start=1):
            _mix(build, number, layer, [symbols.mixing(number, T, s) for s in _names(streams)])
    outputs = _outputs(build, len(architecture.layers), last)
    return Program(tuple(build.inputs), tuple(build.assigns), outputs[0], tuple(outputs[1:])), tuple(build.rows)


def _names(count: int) -> list[int]:
    """Numbers of heads or streams in names: 1, 2, ..., or 0 (not written) where there is one."""
    return list(range(1, count + 1)) if count > 1 else [0]


def _mix(build: _Build, number: int, layer: Attention, targets: list[sp.MatrixSymbol]) -> None:
    """One layer applied to the tokens of every stream."""
    attentions = _heads(build, number, layer)
    T = build.tokens
    for stream, target in enumerate(targets):
        terms = _weighted(layer, attentions, [stream] if build.split else range(layer.heads))
        name = stream + 1 if build.split else 0
        skip = [exact(layer.skip) * sp.Identity(T)] if layer.skip else []
        own = build.assign(symbols.layer_matrix(number, T, name), _plus(*skip, *terms))
        build.mixing[stream] = build.assign(target, (own * build.mixing[stream]).doit())


def _committee(build: _Build, inner: list[Attention]) -> None:
    """First order in the readouts: every layer attends to the original tokens, and what they add is summed."""
    T = build.tokens
    streams = len(build.mixing)
    added: list[list[MatrixExpr]] = [[] for _ in range(streams)]
    for number, layer in enumerate(inner, start=1):
        attentions = _heads(build, number, layer)
        for stream in range(streams):
            terms = _weighted(layer, attentions, [stream] if build.split else range(layer.heads))
            name = symbols.layer_matrix(number, T, stream + 1 if build.split else 0)
            added[stream].append(build.assign(name, _plus(*terms)))
    for stream, name in enumerate(_names(streams)):
        total = build.assign(symbols.statistic(T, name), _plus(*added[stream]))
        build.mixing[stream] = build.assign(symbols.mixing(len(inner), T, name), _plus(sp.Identity(T), total))


def _outputs(build: _Build, number: int, layer: Attention) -> list[sp.MatrixSymbol]:
    """What is observed of the last layer."""
    T, architecture = build.tokens, build.architecture
    if architecture.output == "sequence":
        targets = [symbols.output(T, s) for s in _names(len(build.mixing))]
        _mix(build, number, layer, targets)
        return targets
    attentions = _heads(build, number, layer)
    if architecture.combine == "sum":
        return [build.assign(symbols.output(T), _plus(*_weighted(layer, attentions, range(layer.heads))))]
    return [
        build.assign(symbols.output(T, name), attention)
        for name, attention in zip(_names(layer.heads), attentions, strict=True)
    ]


def _weighted(layer: Attention, attentions: list[MatrixExpr], heads: list[int] | range) -> list[MatrixExpr]:
    return [
        attentions[a] if layer.readouts[a] == 1.0 else (exact(layer.readouts[a]) * attentions[a]).doit(deep=False)
        for a in heads
    ]


def _plus(*terms: MatrixExpr) -> MatrixExpr:
    return terms[0] if len(terms) == 1 else sp.MatAdd(*terms)


def _heads(build: _Build, number: int, layer: Attention) -> list[MatrixExpr]:
    """The attention matrix of every head of a layer, on the mixing as it stands; records fields and scores."""
    found, T = [], build.tokens
    for head, name in enumerate(_names(layer.heads)):
        stream = head if build.split else 0
        if layer.rank_ratio is not None:
            scores = _extensive(build, number, layer, stream) if layer.tied else _between_others(build, number, layer)
            if layer.activation == "linear" and layer.mask is not None:
                found.append(_attended(layer, scores, T))
            else:
                found.append(activated(layer, exact(layer.beta * layer.scale) * scores, T))
            continue
        mixed = []
        for role in ("",) if layer.tied else ("q", "k"):
            symbol = symbols.field(number, layer.rank, build.tokens, role, name)
            vector = symbols.scores_vector(number, layer.rank, build.tokens, role, name)
            build.assign(vector, (build.mixing[stream] * symbol.T).doit())
            build.rows += [
                Row(len(build.inputs), number, head + 1, stream, _label(number, name, role, k, layer))
                for k in range(layer.rank)
            ]
            build.inputs.append(symbol)
            mixed.append(vector)
        found.append(activated(layer, exact(layer.beta * layer.scale) * mixed[0] * mixed[-1].T, T))
    return found


def _extensive(build: _Build, number: int, layer: Attention, stream: int) -> MatrixExpr:
    """The scores of a matrix of extensive rank: symmetric, of T (T + 1) / 2 independent fields in one row, mixed as the
    tokens are, B h B^T.

    h_ab = z_ab, h_aa = sqrt(2) z_aa: all fields have one variance (:mod:`smisym.prior.extensive`).
    """
    T = build.tokens
    symbol = symbols.field(number, 1, T * (T + 1) // 2, "", 0)
    places = {pair: k for k, pair in enumerate(itertools.combinations_with_replacement(range(T), 2))}
    entries = [
        (sp.sqrt(2) if i == j else 1) * symbol[0, places[min(i, j), max(i, j)]] for i in range(T) for j in range(T)
    ]
    build.rows.append(Row(len(build.inputs), number, 1, 0, f"layer {number}", layer.rank_ratio))
    build.inputs.append(symbol)
    own = sp.ImmutableDenseMatrix(T, T, entries)
    B = build.mixing[stream]
    if isinstance(B, sp.Identity):
        return build.assign(symbols.indices(number, T), own)
    return build.assign(symbols.indices(number, T), (B * own * B.T).doit())


def _between_others(build: _Build, number: int, layer: Attention) -> MatrixExpr:
    """The scores of one of extensive rank that is not tied: T (T - 1) independent fields in one row, those of different
    tokens; nothing of the diagonal, which is hidden (:mod:`smisym.prior.untied`)."""
    T = build.tokens
    symbol = symbols.field(number, 1, T * (T - 1), "", 0)
    places = {pair: k for k, pair in enumerate(itertools.permutations(range(T), 2))}
    entries = [symbol[0, places[i, j]] if i != j else sp.Integer(0) for i in range(T) for j in range(T)]
    build.rows.append(Row(len(build.inputs), number, 1, 0, f"layer {number}", layer.rank_ratio, tied=False))
    build.inputs.append(symbol)
    return build.assign(symbols.indices(number, T), sp.ImmutableDenseMatrix(T, T, entries))


def _attended(layer: Attention, scores: MatrixExpr, tokens: int) -> MatrixExpr:
    """Linear scores that are attended to, entry by entry, so that they are seen to be linear in the fields."""
    factor, position = exact(layer.beta * layer.scale), layer.position or ((0.0,) * tokens,) * tokens
    entries = [
        factor * scores[i, j] + exact(position[i][j]) if seen else sp.Integer(0)
        for i, row in enumerate(layer.attended(tokens))
        for j, seen in enumerate(row)
    ]
    return sp.ImmutableDenseMatrix(tokens, tokens, entries)


def activated(layer: Attention, scores: MatrixExpr, tokens: int) -> MatrixExpr:
    """The activation of a layer on its scores, with its position scores and mask."""
    if layer.position is not None:
        scores = scores + sp.ImmutableDenseMatrix(tokens, tokens, [exact(x) for row in layer.position for x in row])
    attended = layer.attended(tokens)
    mask = None
    if not all(all(row) for row in attended):
        mask = sp.ImmutableDenseMatrix(tokens, tokens, [int(x) for row in attended for x in row])
    if layer.activation == "softmax":
        return RowSoftmax(scores, mask)
    if layer.activation == "hardmax":
        return RowHardmax(scores, mask)
    if layer.activation == "linear":
        return scores if mask is None else Elementwise(scores, symbols.SCORE, mask)
    return Elementwise(scores, parse(layer.activation, {"s": symbols.SCORE}, what="activation"), mask)


def exact(value: float) -> sp.Expr:
    """A number of a declaration as sympy reads it best: integers and short decimals exactly."""
    return sp.Integer(int(value)) if value == int(value) else sp.Float(value, 17)


def _label(number: int, head: int, role: str, k: int, layer: Attention) -> str:
    name = f"layer {number}" + (f" head {head}" if head else "") + {"": "", "q": " query", "k": " key"}[role]
    return name if layer.rank == 1 else f"{name}, rank index {k + 1}"


def record_architecture(architecture: Architecture, program: Program, derivation: Derivation) -> None:
    tokens = architecture.tokens
    if any(layer.rank_ratio is not None for layer in architecture.layers):
        _record_extensive(architecture, program, derivation)
        return
    untied = any(not layer.tied for layer in architecture.layers)
    masked = any(layer.mask is not None for layer in architecture.layers)
    slices = architecture.layers[0].heads if architecture.head_layout == "split" else 1
    D, own = (f"D/{slices}", ", of its own head's slice of the tokens") if slices > 1 else ("D", "")
    derivation.add(
        Step(
            "architecture",
            "What was declared",
            f"An attention network on sequences of $T = {tokens}$ tokens, with "
            f"{counted(len(architecture.layers), 'layer')}; what is observed is the "
            f"{architecture.output} output. Tokens are rows: $X$ is $(T, D)$ with "
            "independent standard normal entries, and the weights $W$ have independent standard normal rows."
            + (
                f" The {slices} heads split the embedding: a row of $W$ has ${D}$ entries, and sees the ${D}$ "
                "columns of $X$ that are its head's."
                if slices > 1
                else ""
            )
            + f" {layers_in_words(architecture)}",
            (Formula("Z", rf"W X^{{\top}} / \sqrt{{{D}}}", f"the fields: one row an index{own}, one column a token"),),
            source=PAPER,
        )
    )
    derivation.add(
        Step(
            "link",
            "From attention to a sequence multi-index model",
            "Every layer multiplies the tokens from the left, by $A_l$, so that what leaves it is $X_l = B_l X$ "
            "exactly, with $B_l$ the mixing of all layers up to it, $B_0 = I$. Rows $w_l$ of $W$ are the weights of "
            f"layer $l$, and $h_l = w_l X^{{\\top}} / \\sqrt{{{D}}}$, rows of $Z$, its fields; its scores depend on "
            "the input only through these, mixed as the tokens are: $U_l = B_{l-1} h_l^{\\top}$"
            + (", for queries ($hq_l$, $Uq_l$) and keys ($hk_l$, $Uk_l$) each" if untied else "")
            + (". A masked softmax is over the keys that the mask lets be seen" if masked else "")
            + ". The network is therefore a function of the fields alone, given by the recursion below; it is exact at "
            "every $D$.",
            tuple(Formula(a.target, a.value, code=f"{a.target.name} = {a.value}") for a in program.assigns),
            source=PAPER,
        )
    )
    few = sum(int(symbol.shape[0]) for symbol in program.inputs) <= _READABLE_ROWS
    if tokens == 2 and few and not program.more_outputs and all(_readable(a.value) for a in program.assigns):
        derivation.add(partial(_explicit_step, program))


def _record_extensive(architecture: Architecture, program: Program, derivation: Derivation) -> None:
    tokens, source = architecture.tokens, "arXiv 2506.01582, section 2; the indices are those of tokens as rows"
    if architecture.layers[0].tied:
        made = r"(X S X^{\top} - \operatorname{tr} S\, I) / \sqrt{d}"
        told = (
            "The output is a function of the symmetric matrix of scores alone, of "
            f"$T (T + 1) / 2 = {tokens * (tokens + 1) // 2}$ numbers. Those of a token with itself are divided by "
            "$\\sqrt{2}$, so that all fields have one variance."
        )
    else:
        made = r"X S X^{\top} / \sqrt{d}"
        told = (
            "The output is a function of the scores of different tokens alone, of "
            f"$T (T - 1) = {tokens * (tokens - 1)}$ numbers: no token attends to itself."
        )
    derivation.add(
        Step(
            "architecture",
            "What was declared",
            f"One attention layer on sequences of $T = {tokens}$ tokens, whose key-query matrix $S$ has a rank that "
            "grows with the dimension $d$ of the tokens; what is observed is the "
            f"{architecture.output} output. Tokens are rows: $X$ is $(T, d)$ with independent standard normal entries. "
            f"{layers_in_words(architecture)}",
            (Formula("H", made, "the scores, of order one"),),
            source=source,
        )
    )
    derivation.add(
        Step(
            "link",
            "From attention to its indices",
            told,
            tuple(Formula(a.target, a.value, code=f"{a.target.name} = {a.value}") for a in program.assigns),
            source=source,
        )
    )


def _readable(value: MatrixExpr) -> bool:
    """Whether the entries of a value fit on a page: plain softmaxes and products."""
    return not value.atoms(RowHardmax, Elementwise) and all(s.mask is None for s in value.atoms(RowSoftmax))


def _explicit_step(program: Program) -> Step:
    """The same recursion entry by entry; only for T = 2, where it is readable."""
    formulas = []
    for assign in program.assigns:
        value = assign.value
        if isinstance(value, RowSoftmax):
            entries = _explicit_softmax(value)
        else:
            entries = (
                value.xreplace({s: _explicit_softmax(s) for s in value.atoms(RowSoftmax)}).as_explicit()
                if value.has(RowSoftmax)
                else value.as_explicit()
            )
        formulas.append(Formula(assign.target, entries))
    text = "For two tokens a row softmax is one logistic function a row, $\\sigma(x) = 1 / (1 + e^{-x})$."
    return Step("link", "Entry by entry", text, tuple(formulas))


def _explicit_softmax(expression: RowSoftmax) -> sp.ImmutableDenseMatrix:
    """Entries of a 2 x 2 row softmax as logistic functions of score differences."""
    scores, logistic = expression.arg.as_explicit(), sp.Function("sigma")
    a = logistic(sp.factor(scores[0, 0] - scores[0, 1]))
    b = logistic(sp.factor(scores[1, 1] - scores[1, 0]))
    return sp.ImmutableDenseMatrix([[a, 1 - a], [1 - b, b]])
