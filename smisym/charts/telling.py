"""What a head leaves unknown, in words and formulas, for documents."""

from __future__ import annotations

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.charts.catalogue import Inverse, TiedHead, UntiedHead
from smisym.charts.unmixing import Head
from smisym.link.program import Elementwise, RowSoftmax

SOURCE = "arXiv 2502.00901, appendices A and E; the other entries of the catalogue are derived here"
# (rank, tokens) at which tests hold an entry against the link, by (tied, softmax); linear scores and activations alike.
TESTED = {
    (True, True): ((1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (3, 4)),
    (True, False): ((1, 2), (1, 3), (2, 2)),
    (False, True): ((1, 2), (1, 3), (1, 4), (2, 2), (2, 3)),
    (False, False): ((1, 2), (1, 3), (2, 2)),
}


def told_heads(heads: list[Head]) -> tuple[Step, ...]:
    """One step for each output."""
    steps = []
    for number, head in enumerate(heads, start=1):
        text, formulas = _words(head, number if len(heads) > 1 else 0)
        what = f"head {number}" if len(heads) > 1 else "the attention matrix"
        steps.append(Step("chart", f"What {what} leaves unknown", text, formulas, _held(head.inverse), SOURCE))
    return tuple(steps)


def _held(inverse: Inverse) -> tuple[tuple[str, str], ...]:
    """How this entry of the catalogue was verified: by tests at some sizes, not by a symbolic proof."""
    known = TESTED[isinstance(inverse, TiedHead), inverse.softmax]
    own = "" if (inverse.rank, inverse.tokens) in known else ", of which this is none"
    how = (
        "derived on paper, not proved symbolically; tests hold it against the co-area formula, and its posterior "
        f"moments against draws from the truth, at (rank, tokens) = {', '.join(map(str, known))}{own}"
    )
    return ((r"every $Z$ with $f(Z) = y$ is met, with the measure of the level set", how),)


def _words(head: Head, number: int) -> tuple[str, tuple[Formula, ...]]:
    inverse, tokens = head.inverse, int(head.fields[0].shape[1])
    seen = " through its log-ratios" if isinstance(head.core.expression, RowSoftmax) else ""
    count = f"{inverse.dimension} independent numbers"
    if isinstance(inverse, TiedHead):
        text, formula = _tied(inverse, f"{seen}: {count}")
    elif isinstance(inverse, UntiedHead) and inverse.orbit:
        power = (1 if inverse.softmax else 0) - inverse.rank
        measure = rf"|\det M|^{{{power}}}\," if power else ""
        text = (
            f"The output shows the product of queries and keys{seen}: {count}. Queries and keys are known up "
            f"to a matrix $M$ of GL({inverse.rank}) with measure ${measure}dM$"
            + (f", and a shift common to all keys, of {counted(inverse.rank, 'number')}." if inverse.softmax else ".")
            + (
                " $M$ is a rotation times an upper triangular matrix: in its entry off the diagonal queries and keys "
                "are affine."
                if inverse.rank == 2
                else ""
            )
            + (
                f" {counted(inverse.directions, 'free direction')} {'is' if inverse.directions == 1 else 'are'} "
                "integrated in closed form."
                if inverse.directions
                else ""
            )
        )
        note = "queries and keys: one pair $A$, $C$ that has this product, and the gauge"
        note += "; $1$: a one for each token, $c$: the shift, flat" if inverse.softmax else ""
        shift = r" + 1 c^{\top}" if inverse.softmax else ""
        formula = Formula("(Uq, Uk)", rf"(A M,\ C M^{{-\top}}{shift})", note)
    else:
        keys = "difference of the keys is free, with a shift common to both" if inverse.latents else "keys are free"
        unseen = inverse.rank - (tokens - 1 if inverse.softmax else tokens)
        text = (
            f"The output shows the product of queries and keys{seen}: {count}. The {keys}, and the "
            f"query of each token obeys linear equations that leave {counted(unseen, 'direction')} a token."
        )
        note = (
            f"$q_i$: the query of a token, a row of $Uq$; $K$: the {_shown(inverse)} as rows, of $Uk$; $E_i$: what the "
            "output shows of its scores; of least norm, and the rest integrated"
        )
        formula = Formula(r"K q_i", "E_i", note)
    return text, (_scores(head), formula, _fields(head, number), _weight(head, number))


def _tied(inverse: TiedHead, shown: str) -> tuple[str, Formula]:
    """What is left of queries that are keys; shown: through what, and how much."""
    text = (
        f"The output shows the Gram matrix of $U${shown}. "
        + (
            "Only differences of rows are seen, and the mean row where it overlaps with them. "
            if inverse.softmax
            else ""
        )
        + (
            "$U$ is known up to one sign."
            if inverse.rank == 1
            else f"The rest is {counted(inverse.frame, 'orthonormal vector')} in {inverse.rank} dimensions, "
            f"uniform ({counted(len(inverse.latents), 'angle')}, {counted(inverse.branches, 'sheet')})"
            + (f", and {counted(inverse.directions, 'free direction')}." if inverse.directions else ".")
        )
    )
    note = "$U_0$: has these numbers, in as many columns as $F$ has rows; $F$: the orthonormal vectors as rows"
    along, rest = "", r"F F^{\top} = I"
    if inverse.directions:
        along, rest = r" + 1 c^{\top} N", rest + r",\ N F^{\top} = 0,\ N N^{\top} = I"
        note += "; $1$: a one for each token; $c$ is not seen"
    formula = Formula("U", rf"U_0 F{along}, \qquad {rest}", note)
    if inverse.rank == 1:
        formula = Formula("U", r"\pm U_0", "$U_0$: a vector that has these numbers")
    return text, formula


def _scores(head: Head) -> Formula:
    """What the output says of the scores."""
    core, k = head.core, "" if head.coefficient == 1 else rf"{head.coefficient:g}\, "
    product = k + (r"U U^{\top}" if isinstance(head.inverse, TiedHead) else r"Uq\, Uk^{\top}")
    plain = core.coefficient == 1 and not np.any(core.constant)
    said = [] if plain else ["$A$: the attention matrix, of which the output is an affine map"]
    if np.any(head.constant):
        product, said = product + " + P", [*said, "$P$: scores that are constant"]
    shown = "y" if plain else "A"
    if isinstance(core.expression, RowSoftmax):
        ratio = rf"\log \frac{{{shown}_{{ij}}}}{{{shown}_{{ii}}}}"
        return Formula(rf"({product})_{{ij}} - ({product})_{{ii}}", ratio, "; ".join(said))
    if isinstance(core.expression, Elementwise):
        said = ["entry by entry; $\\sigma$ is strictly monotone, which is tested, and is solved for the score", *said]
        return Formula(rf"\sigma({product})", shown, "; ".join(said))
    return Formula(product, shown, "; ".join(said))


def _mixing(head: Head) -> str:
    """The matrix that mixes the fields, its numbers to six digits."""
    return str(sp.latex(head.mixing.xreplace({x: sp.Float(x, 6) for x in head.mixing.atoms(sp.Float)})))


def _fields(head: Head, number: int) -> Formula:
    """The fields from what is mixed; number: of the head, 0 where it is the only one."""
    back = "" if isinstance(head.mixing, sp.Identity) else rf"({_mixing(head)})^{{-1}} "
    names = ["U"] if isinstance(head.inverse, TiedHead) else ["Uq", "Uk"]
    solved = list(zip(head.solved, names, strict=False))
    left = ",\\ ".join(rf"{sp.latex(field)}^{{\top}}" for field, _ in solved)
    return Formula(left, ",\\ ".join(back + name for _, name in solved), "" if number else "every other field is free")


def _shown(inverse: Inverse) -> str:
    return "differences of keys" if inverse.softmax else "keys"


def _weight(head: Head, number: int) -> Formula:
    """The measure of the head's sheets; number: of the head, 0 where it is the only one."""
    inverse, tokens = head.inverse, int(head.fields[0].shape[1])
    if isinstance(inverse, TiedHead):
        own, note = "", "frames $F$ are uniform" + (", directions flat" if inverse.directions else "")
        note = "both signs alike" if inverse.rank == 1 else note
    elif isinstance(inverse, UntiedHead) and inverse.orbit:
        power = (1 if inverse.softmax else 0) - inverse.rank
        letter = f"w_{{{number}}}" if number else "w"
        own, note = rf"\lvert\det M\rvert^{{{power}}}" if power else "", f"the measure of $M$ is ${letter}\\, dM$"
    else:
        own = rf"\det(K K^{{\top}})^{{-{'1' if tokens == 2 else f'{tokens}/2'}}}"
        note = "the query of each token pays $\\det(K K^{\\top})^{-1/2}$"
    if not isinstance(head.mixing, sp.Identity):
        rows = sum(int(field.shape[0]) for field in head.solved)
        own += (r"\, " if own else "") + rf"\lvert\det({_mixing(head)})\rvert^{{-{rows}}}"
        note += "; each row of the fields solved for pays once for the mixing"
    whose = (
        "weight of each sheet"
        if not number
        else "weight of each of its sheets; that of the network is the product over heads"
    )
    return Formula(f"w_{{{number}}}" if number else "w", own or "1", f"{whose}; {note}")
