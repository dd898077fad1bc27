"""Architecture into LinkFunction: the mixing recursion of tied and untied attention.

    U_l = B_{l-1} h_l^T,    A_l = c I + sigma(beta U_l U_l^T),    B_l = A_l B_{l-1},    B_0 = I

(arXiv 2502.00901, eqs 2-7 and appendix A; tokens are rows).  Mixing commutes with the
projection on weights, X_l w = B_l (X_0 w), which is why fields of the *input* suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from smisym import symbols
from smisym.architecture import Architecture, Attention
from smisym.derivation import Derivation, Formula, Step
from smisym.errors import InputError
from smisym.program import MAX_TOKENS, Assign, Program, RowSoftmax, Unroller

PAPER = "arXiv 2502.00901, eqs 2-7 and appendix A"


@dataclass(frozen=True)
class Observation:
    """Outputs of a batch of samples, with the digits that a float ``y`` loses.

    y
        (S, T, T), the output.
    log_ratios
        (S, T, T) ``log y_ij - log y_ii`` where the output is a row softmax, else None.  Exact where y underflows
        or where nearly equal scores leave no digits in y.
    exact
        False when the log-ratios were taken from a rounded y.
    """

    y: np.ndarray
    log_ratios: np.ndarray | None
    exact: bool = True

    def __len__(self) -> int:
        return self.y.shape[0]

    def __getitem__(self, index: slice | np.ndarray) -> Observation:
        ratios = None if self.log_ratios is None else self.log_ratios[index]
        return Observation(self.y[index], ratios, self.exact)


@dataclass(frozen=True)
class LinkFunction:
    """The exact link ``y = f(Z)`` as a program.

    program
        Fields to output; inputs in the order of the rows of Z (layer, then query before key, then rank).
    row_inputs
        For each row of Z, the index of its input in the program.
    row_layers
        For each row of Z, its layer, counted from 1.
    labels
        For each row of Z, its name in plain text.
    """

    program: Program
    row_inputs: tuple[int, ...]
    row_layers: tuple[int, ...]
    labels: tuple[str, ...]
    _numeric: Callable[..., list[np.ndarray]]

    @property
    def fields(self) -> int:
        return len(self.row_inputs)

    @property
    def tokens(self) -> int:
        return self.program.tokens

    @property
    def output_is_softmax(self) -> bool:
        return isinstance(self.program.definitions[self.program.output], RowSoftmax)

    def raw(self, Z: np.ndarray) -> np.ndarray:
        """(S, T, T) log-ratios of a softmax output, or the output itself; Z (S, P, T), complex allowed.

        The log-ratios are an analytic function of Z: complex steps give exact derivatives.
        """
        size = self.tokens
        with np.errstate(over="ignore"):
            values = self._numeric(*np.moveaxis(Z.reshape(Z.shape[0], -1), 1, 0))
        shape = (Z.shape[0],)
        return np.stack([np.broadcast_to(v, shape) for v in values], axis=1).reshape(-1, size, size)

    def observe(self, Z: np.ndarray) -> Observation:
        """The output with its log-ratios; Z (S, P, T)."""
        Z = check_fields(Z, self.fields, self.tokens)
        raw = self.raw(Z)
        if not self.output_is_softmax:
            return Observation(raw, None)
        return Observation(_softmax_of_ratios(raw), raw)

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        """The output y (S, T, T) at fields Z (S, P, T)."""
        return self.observe(Z).y


def _softmax_of_ratios(ratios: np.ndarray) -> np.ndarray:
    weights = np.exp(ratios - ratios.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def check_fields(Z: np.ndarray, fields: int, tokens: int) -> np.ndarray:
    """Z as a float array of shape (S, P, T), or an InputError."""
    Z = np.asarray(Z, dtype=float)
    if Z.ndim != 3 or Z.shape[1:] != (fields, tokens):
        raise InputError("shape of the fields Z", Z.shape, f"(S, {fields}, {tokens})", "stack samples along axis 0")
    if not np.isfinite(Z).all():
        raise InputError("fields Z", "an array with NaN or infinity", "finite numbers", "remove the bad samples")
    return Z


def link_function(architecture: Architecture, derivation: Derivation) -> LinkFunction:
    """Architecture -> LinkFunction, by the mixing recursion; records its steps."""
    program, rows = build_program(architecture)
    _record(architecture, program, derivation)
    return LinkFunction(program, *rows, compile_program(program))


def link_from_program(program: Program) -> LinkFunction:
    """A LinkFunction for a program handed over as such: every input is its own group of rows."""
    ranks = [int(symbol.shape[0]) for symbol in program.inputs]
    row_inputs = tuple(i for i, rank in enumerate(ranks) for _ in range(rank))
    labels = tuple(
        s.name if r == 1 else f"{s.name}[{k + 1}]" for s, r in zip(program.inputs, ranks, strict=True) for k in range(r)
    )
    return LinkFunction(program, row_inputs, tuple(i + 1 for i in row_inputs), labels, compile_program(program))


def build_program(
    architecture: Architecture,
) -> tuple[Program, tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]]:
    """The program of an architecture and (row_inputs, row_layers, labels) of its fields."""
    tokens = architecture.tokens
    if tokens > MAX_TOKENS:
        raise InputError(
            "tokens", tokens, f"at most {MAX_TOKENS} for a compiled link", "use fewer tokens, or raise MAX_TOKENS"
        )
    mixing: MatrixExpr = sp.Identity(tokens)
    inputs: list[sp.MatrixSymbol] = []
    assigns: list[Assign] = []
    rows: list[tuple[int, int, str]] = []
    last = len(architecture.layers)
    for number, layer in enumerate(architecture.layers, start=1):
        scores, fields = _scores(layer, number, tokens, mixing, assigns)
        for symbol, role in fields:
            rows += [(len(inputs), number, _label(number, role, k, layer)) for k in range(layer.rank)]
            inputs.append(symbol)
        attention = RowSoftmax(scores) if layer.activation == "softmax" else scores
        if number == last and architecture.output == "attention":
            assigns.append(Assign(symbols.output(tokens), attention))
            break
        own = symbols.layer_matrix(number, tokens)
        assigns.append(Assign(own, exact(layer.skip) * sp.Identity(tokens) + attention))
        target = symbols.output(tokens) if number == last else symbols.mixing(number, tokens)
        assigns.append(Assign(target, (own * mixing).doit()))
        mixing = target
    row_inputs, row_layers, labels = zip(*rows, strict=True)
    return Program(tuple(inputs), tuple(assigns), symbols.output(tokens)), (row_inputs, row_layers, labels)


def _scores(
    layer: Attention, number: int, tokens: int, mixing: MatrixExpr, assigns: list[Assign]
) -> tuple[MatrixExpr, list[tuple[sp.MatrixSymbol, str]]]:
    """Scores of one layer, ``beta U U^T`` or ``beta U^q U^kT``, and its fields with their roles."""
    if layer.heads != 1:
        raise InputError("heads", layer.heads, "1 in this version", "declare one head a layer")
    fields = []
    mixed = []
    for role in ("",) if layer.tied else ("q", "k"):
        symbol = symbols.field(number, layer.rank, tokens, role)
        vector = symbols.scores_vector(number, layer.rank, tokens, role)
        assigns.append(Assign(vector, (mixing * symbol.T).doit()))
        fields.append((symbol, role))
        mixed.append(vector)
    return exact(layer.beta) * mixed[0] * mixed[-1].T, fields


def exact(value: float) -> sp.Expr:
    """A number of a declaration as sympy reads it best: integers and short decimals exactly."""
    return sp.Integer(int(value)) if value == int(value) else sp.Float(value, 17)


def _label(number: int, role: str, k: int, layer: Attention) -> str:
    name = f"layer {number}" + {"": "", "q": " query", "k": " key"}[role]
    return name if layer.rank == 1 else f"{name}, rank index {k + 1}"


def compile_program(program: Program) -> Callable[..., list[np.ndarray]]:
    """Numpy code of the program: entries of the fields in, log-ratios (or output entries) out."""
    unroll = Unroller()
    arguments = [entry for symbol in program.inputs for entry in unroll.bind(symbol)]
    for assign in program.assigns:
        if assign.target == program.output:
            value = assign.value
            matrix = unroll.log_ratios(value.arg) if isinstance(value, RowSoftmax) else unroll.entries(value)
            return unroll.compile(arguments, list(matrix))
        unroll.assign(assign.target, assign.value)
    raise ValueError("the program never assigns its output")


def _record(architecture: Architecture, program: Program, derivation: Derivation) -> None:
    tokens = architecture.tokens
    derivation.add(
        Step(
            "architecture",
            "What was declared",
            f"An attention network on sequences of $T = {tokens}$ tokens, with {len(architecture.layers)} "
            f"layer(s); what is observed is the {architecture.output} output. Tokens are rows: $X$ is $(T, D)$ with "
            "independent standard normal entries, and the weights $W$ have independent standard normal rows.",
            (Formula("Z", r"W X^{\top} / \sqrt{D}", "the fields: one row an index, one column a token"),),
            source=PAPER,
        )
    )
    derivation.add(
        Step(
            "link",
            "From attention to a sequence multi-index model",
            "Every layer multiplies the tokens from the left, so that $X_l = B_l X$ exactly, and the scores of a layer "
            "depend on the input only through $X w = \\sqrt{D}\\, h^{\\top}$. The network is therefore a function of "
            "the fields alone, given by the recursion below; it is exact at every $D$.",
            tuple(Formula(a.target, a.value, code=f"{a.target.name} = {a.value}") for a in program.assigns),
            source=PAPER,
        )
    )
    if tokens == 2:
        derivation.add(_explicit_step(program))


def _explicit_step(program: Program) -> Step:
    """The same recursion entry by entry; only for T = 2, where it is readable."""
    formulas = []
    for assign in program.assigns:
        value = assign.value
        if isinstance(value, RowSoftmax):
            entries = explicit_softmax(value)
        else:
            entries = (
                value.xreplace({s: explicit_softmax(s) for s in value.atoms(RowSoftmax)}).as_explicit()
                if value.has(RowSoftmax)
                else value.as_explicit()
            )
        formulas.append(Formula(assign.target, entries))
    return Step(
        "link", "Entry by entry", "For two tokens a row softmax is one logistic function a row.", tuple(formulas)
    )


def explicit_softmax(expression: RowSoftmax) -> sp.ImmutableDenseMatrix:
    """Entries of a 2 x 2 row softmax as logistic functions of score differences."""
    scores = expression.arg.as_explicit()
    a = 1 / (1 + sp.exp(sp.factor(scores[0, 0] - scores[0, 1])))
    b = 1 / (1 + sp.exp(sp.factor(scores[1, 1] - scores[1, 0])))
    return sp.ImmutableDenseMatrix([[1 - a, a], [b, 1 - b]])
