"""Sheets that were found by solving: their weights, and the step of the derivation that shows both."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import sympy as sp

from smisym.base import symbols
from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.charts.atoms import Constants
from smisym.charts.explicit import Fields, Read
from smisym.charts.implied import Implied
from smisym.link.linking import LinkFunction

# Power of the Jacobians by which sheets share: at a fold, a square root, weights then vanish like its cube.
_POWER = 4
# So many sheets are written out, and Jacobians of so many operations.
_SHOWN, _READABLE = 4, 400
SOURCE = "solved by sympy; checked at random fields when compiled"


@dataclass(frozen=True)
class SolvedSheet:
    """One solution on one orthant.

    signs: of the fields whose sign is fixed.  free: fields that are coordinates.  solved: the others in terms of
    these and of the outputs.  constants: outputs that are constant here, with their values (``atoms``: as numbers).
    jacobian: of the outputs by the fields solved for, on the sheet.  ways: where sheets for other fields hold the same
    points, the Jacobians of all of them in terms of all fields.  poles: free fields on a logarithmic scale.
    """

    signs: dict[sp.Symbol, int]
    free: Fields
    solved: dict[sp.Symbol, sp.Expr]
    constants: dict[int, sp.Expr]
    jacobian: sp.Expr
    ways: dict[frozenset[sp.Symbol], sp.Expr]
    poles: frozenset[sp.Symbol]
    shown: dict[int, sp.Expr]

    @property
    def atoms(self) -> Constants:
        return {k: float(value) for k, value in self.constants.items()}

    @property
    def log_weight(self) -> sp.Expr:
        """Minus the log of the Jacobian, and the share of this sheet where others hold the same points."""
        own = -sp.log(sp.Abs(self.jacobian))
        if not self.ways:
            return own
        return (1 - _POWER) * own - sp.log(sp.Add(*(way.subs(self.solved) ** _POWER for way in self.ways.values())))


def told(link: LinkFunction, sheets: list[SolvedSheet], read: Read, implied: Implied, trials: int) -> Step:
    """What was solved for what, with the weights; trials: random fields that were found again."""
    names = {
        symbols.entry(matrix, i, j): sp.Symbol(symbols.entry_latex(matrix, i, j), real=True)
        for matrix in link.program.inputs
        for i, j in itertools.product(*map(range, matrix.shape))
    }
    shown = list(read.meanings())
    for number, sheet in enumerate(sheets[:_SHOWN], start=1):
        outputs = [f"{read.letter}_{{{implied.kept[k] + 1}}}" for k in sheet.shown]
        fixed = {f"{read.letter}_{{{implied.kept[k] + 1}}}": value for k, value in sheet.constants.items()}
        shown += _formulas(sheet, names, outputs, fixed, number if len(sheets) > 1 else 0)
    if any(sheet.ways for sheet in sheets):
        shown.append(_SHARE)
    signed = any(sheet.signs for sheet in sheets)
    solved = sorted({f"${names[f]}$" for sheet in sheets for f in sheet.solved})
    free = max(len(s.free) for s in sheets)
    left = (
        f"{free} fields are left as coordinates"
        if free > 1
        else f"{'1' if free else 'No'} field is left as a coordinate"
    )
    told_by = ", ".join(f"{read.letter}_{{{k + 1}}}" for k in implied.kept)
    text = (
        ("Signs of fields cut them into orthants; the link was solved on each" if signed else "The link was solved")
        + f", {counted(len(sheets), 'sheet')} in all"
        + (f" (the first {_SHOWN} are written out)" if len(sheets) > _SHOWN else "")
        + (f", for {', '.join(solved)}" if solved else "; it is constant on each")
        + f". {left}."
        + f" The output is told by $u = {told_by if len(implied.kept) == 1 else f'({told_by})'}$."
        + (
            f" A sheet counts only where its fields are real{', have its signs' if signed else ''} and give all of $y$."
            if len(sheets) > 1
            else ""
        )
        + (f" {implied}, left out here." if implied.numbers else "")
        + (_SHARED if any(sheet.ways for sheet in sheets) else "")
    )
    check = ("every one of random fields lies on one of the sheets", f"{trials} random fields, found again to 1e-6")
    return Step("chart", "Solving for the fields", text, tuple(shown), (check,), source=SOURCE)


def _formulas(
    sheet: SolvedSheet,
    names: dict[sp.Symbol, sp.Symbol],
    outputs: list[str],
    fixed: dict[str, sp.Expr],
    number: int,
) -> list[Formula]:
    """The fields on a sheet, counted from 1 where there are several, and what it weighs; fixed: constant outputs."""
    where = ", ".join(f"${names[f]} {'>' if s > 0 else '<'} 0$" for f, s in sheet.signs.items())
    which = f"sheet {number}" if number else "the sheet"
    note = ", ".join(said for said in (which if number else "", where) if said)
    found = [Formula(output, value, f"{note}; no other value is on it") for output, value in fixed.items()]
    found += [Formula(names[field], value.xreplace(names), note) for field, value in sheet.solved.items()]
    if not sheet.solved:
        return [*found, Formula("w", "1", f"weight of {which}: all fields are free")]
    by = ", ".join(str(names[f]) for f in sheet.solved)
    if sheet.jacobian.count_ops() > _READABLE:
        jacobian: sp.Basic | str = rf"\det \frac{{\partial ({', '.join(outputs)})}}{{\partial ({by})}}"
    else:
        jacobian = sheet.jacobian.xreplace(names)
    seen = f" of ${', '.join(outputs)}$ by the fields solved for" if number < 2 else ""
    if sheet.ways:
        return [*found, Formula(rf"J_{{({by})}}", jacobian, f"Jacobian of {which}{':' if seen else ''}{seen}")]
    weight = 1 / sp.Abs(jacobian) if isinstance(jacobian, sp.Expr) else rf"1 / \left|{jacobian}\right|"
    return [*found, Formula("w", weight, f"weight of {which}" + (f": one over the Jacobian{seen}" if seen else ""))]


_SHARED = (
    " Where the level set turns parallel to a field, the solution for it has a fold; others are solved for as well, "
    f"and each point counts on every sheet that holds it, in proportion to the {_POWER}th power of the Jacobian there."
)
_SHARE = Formula(
    "w",
    rf"\frac{{1}}{{|J|}} \cdot \frac{{J^{_POWER}}}{{\sum_k J_k^{_POWER}}}",
    "weight of a sheet of Jacobian $J$: one over it, times its share; $J_k$ are the Jacobians of all choices of fields "
    "at the same point",
)
