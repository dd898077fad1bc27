"""Parts of a link that share no field: outputs that are made of disjoint groups of inputs.

With f = (f_1, ..., f_n), each f_k of rows R_k alone, the likelihood of all outputs is a product. Given a cavity that
does not couple the groups either, so is the posterior,

    p(Z | y, omega, V) = prod_k p(Z_k | y_k, omega_k, V_kk),

and an integral over all free fields is n integrals, each over its own.  Seen from the data flow, never from a name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy as sp

from smisym.base.derivation import Derivation, Formula, Step
from smisym.link.linking import LinkFunction, Observation, sublink
from smisym.link.program import Program

_FIELDS, _SEED = 16, 20261124


@dataclass(frozen=True)
class Component:
    """Rows of Z that some of the outputs depend on, and no others: rows and outputs in their order, and their link."""

    rows: tuple[int, ...]
    outputs: tuple[int, ...]
    link: LinkFunction

    def observed(self, observation: Observation) -> Observation:
        """What of an observation of all outputs is one of these."""
        where = self.outputs[0] if len(self.outputs) == 1 else list(self.outputs)
        ratios = observation.log_ratios
        ratios = None if ratios is None else ratios[:, where]
        scores = None if observation.scores is None else observation.scores[:, where]
        return Observation(observation.y[:, where], ratios, observation.exact, observation.units, scores)

    def free_of(self, V: np.ndarray) -> bool:
        """Whether covariances V (..., P, P) couple none of its rows with others."""
        others = np.setdiff1d(np.arange(V.shape[-1]), self.rows)
        return not V[..., list(self.rows), :][..., others].any()


def find_components(link: LinkFunction) -> tuple[Component, ...]:
    """The parts of a link; none where it is one, or where some field is in no output.

    Raises ArithmeticError where outputs of the parts miss those of the whole.
    """
    program = link.program
    if len(program.outputs) == 1:
        return ()
    groups = _groups(program)
    if len(groups) == 1 or set().union(*(inputs for inputs, _ in groups)) != set(range(len(program.inputs))):
        return ()
    found = []
    for inputs, outputs in groups:
        rows = tuple(r for r, i in enumerate(link.row_inputs) if i in inputs)
        part = sublink(_part(program, inputs, outputs), tuple(link.rows[r] for r in rows), link.slices)
        found.append(Component(rows, outputs, part))
    off = apart(link, tuple(found))
    if not off <= 1e-12:
        raise ArithmeticError(f"outputs of the parts of a program miss those of the whole by {off:.1e}")
    return tuple(found)


def _groups(program: Program) -> list[tuple[set[int], tuple[int, ...]]]:
    """Inputs and outputs of each part: outputs that share an input, directly or by others, are one part."""
    groups: list[tuple[set[int], tuple[int, ...]]] = []
    for number, output in enumerate(program.outputs):
        inputs = {i for i, symbol in enumerate(program.inputs) if program.depends_on(output, [symbol])}
        met = [group for group in groups if group[0] & inputs]
        groups = [group for group in groups if not group[0] & inputs]
        outputs = tuple(sorted([number, *(o for group in met for o in group[1])]))
        groups.append((inputs.union(*(group[0] for group in met)), outputs))
    return sorted(groups, key=lambda group: group[1])


def _part(program: Program, inputs: set[int], outputs: tuple[int, ...]) -> Program:
    """The program of some of the outputs, with the assignments that these need."""
    chosen = [program.outputs[k] for k in outputs]
    needed: set[sp.MatrixSymbol] = set(chosen)
    assigns = []
    for assign in reversed(program.assigns):
        if assign.target in needed:
            needed |= assign.value.atoms(sp.MatrixSymbol)
            assigns.append(assign)
    own = tuple(symbol for i, symbol in enumerate(program.inputs) if i in inputs)
    return Program(own, tuple(reversed(assigns)), chosen[0], tuple(chosen[1:]))


def apart(link: LinkFunction, parts: tuple[Component, ...]) -> float:
    """Largest relative difference of the outputs of the parts from those of the whole, at random fields."""
    Z = np.random.default_rng(_SEED).standard_normal((_FIELDS, link.fields, link.tokens))
    whole = link.raw(Z)
    off = 0.0
    for part in parts:
        own = part.link.raw(Z[:, list(part.rows)]).reshape(_FIELDS, len(part.outputs), -1)
        seen = whole[:, list(part.outputs)].reshape(own.shape)
        off = max(off, float((np.abs(own - seen) / np.maximum(np.abs(seen), 1.0)).max()))
    return off


def record_components(link: LinkFunction, parts: tuple[Component, ...], derivation: Derivation) -> None:
    """What the parts are, and how they were held against the whole."""
    rows = ", ".join("{" + ", ".join(str(row + 1) for row in part.rows) + "}" for part in parts)
    derivation.add(
        Step(
            "link",
            "Outputs that share no field",
            f"The outputs are {len(parts)} groups, made of rows {rows} of Z and of no others. Where the cavity does "
            "not couple these groups, the posterior is a product, and each part is integrated by itself.",
            (
                Formula(r"p(Z \mid y, \omega, V)", r"\prod_k p(Z_k \mid y_k, \omega_k, V_{kk})"),
                Formula(r"\log Z_{\mathrm{out}}", r"\sum_k \log p(y_k \mid \omega_k, V_{kk})"),
            ),
            (("outputs of the parts", f"those of the whole, at {_FIELDS} random fields: {apart(link, parts):.0e}"),),
            source="data flow of the program; derived here",
        )
    )
