"""The group that leaves the link unchanged, and what it leaves of the overlaps.

Two kinds of maps of the rows of Z matter.  An *invariance* leaves the output as it is: the data cannot tell weights
from their images.  An *equivariance* moves the output by a relabelling (signs and exchanges of what is observed): the
posterior follows, so that state evolution commutes with the map, and an overlap that starts invariant stays so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.link.commuting import commutant
from smisym.link.groups import FEW, Found, closure, generating, group, is_flip, sign_group
from smisym.link.linking import LinkFunction
from smisym.link.program import Program
from smisym.link.reflection import reflections
from smisym.link.scale import sizes

# Fields at which a candidate is tried, and how well the outputs must agree relative to their size.
_TRIALS, _EQUAL = 24, 1e-9


@dataclass(frozen=True, repr=False)
class Symmetry:
    """Symmetry facts as plain arrays.

    signs
        (G, P), entries +-1: every flip of rows of Z that leaves the link unchanged, the identity first.
    basis
        (k, P, P): basis of the symmetric matrices that commute with every equivariance, orthogonal under the trace.
        Where they commute with one another these are the projectors on the blocks of rows that are learned together,
        and the coordinates of an overlap are its eigenvalues.
    parts
        (k,): which part each of them belongs to, counted from 0.  Overlaps of different parts vanish; those of one part
        are coupled.  As many parts as matrices where all are projectors.
    elements
        (G, P, P): the finite group of signed exchanges of rows, and of reflections of combinations of rows, that leave
        the link unchanged, the identity first.
    rotations
        Groups of rows on which a common rotation leaves the link unchanged; each a tuple of tuples of rows that are
        turned alike (one for tied weights, two for untied ones).
    gauges
        (query rows, key rows) of every untied head whose queries may be multiplied by any M of GL(rank) and its keys by
        M^{-T}: a scale at rank one.  The prior of the weights is not invariant: it fixes M up to rotations.
    """

    signs: np.ndarray
    basis: np.ndarray
    parts: np.ndarray
    elements: np.ndarray
    rotations: tuple[tuple[tuple[int, ...], ...], ...] = ()
    gauges: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def __repr__(self) -> str:
        more = [counted(len(self.rotations), "rotation")] if self.rotations else []
        more += [counted(len(self.gauges), "gauge")] if self.gauges else []
        group = ", ".join([counted(len(self.elements), "element"), *more])
        left = counted(len(self.basis), "block" if self.projectors else "coupled overlap")
        return f"<Symmetry: {group}; {left} of {counted(self.basis.shape[-1], 'row')}>"

    def kept(self, respects: Callable[[np.ndarray], bool]) -> Symmetry:
        """Without what a law of the weights does not respect: it tells such rows apart though the output does not."""
        elements = np.array([respects(element) for element in self.elements])
        signs = np.array([respects(np.diag(flip)) for flip in self.signs])
        return replace(self, elements=self.elements[elements], signs=self.signs[signs])

    @property
    def projectors(self) -> bool:
        """Whether the basis consists of projectors: no overlaps are coupled."""
        return len(self.directions) == len(self.basis)

    @property
    def apart(self) -> bool:
        """Whether no overlap between two rows is left."""
        return not np.abs(self.basis * (1 - np.eye(self.basis.shape[-1]))).max(initial=0.0) > 1e-9

    @cached_property
    def directions(self) -> tuple[np.ndarray, ...]:
        """Of each part an orthonormal basis (d, P) of the rows, or combinations of rows, that it is about."""
        found = []
        for part in range(int(self.parts.max()) + 1):
            # The square of one matrix may miss rows that are only in others.
            whole = np.einsum("kij,kjl->il", self.basis[self.parts == part], self.basis[self.parts == part])
            values, vectors = np.linalg.eigh(whole)
            found.append(np.ascontiguousarray(vectors.T[values > 1e-9]))
        return tuple(found)

    def span(self, parts: Iterable[int] | np.ndarray) -> np.ndarray:
        """The projector (P, P) on some parts: numbers, or one boolean each."""
        chosen = np.asarray(parts)
        numbers = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(int)
        rows = [self.directions[int(part)] for part in numbers]
        P = self.basis.shape[-1]
        return np.asarray(sum((D.T @ D for D in rows), np.zeros((P, P))))

    def may_be_shown(self, learned: np.ndarray | None = None) -> np.ndarray:
        """(parts,): of which parts outputs may tell something where others, booleans (parts,), are learned already.

        Of those of which some vector is left by every element of the group that leaves what is learned where it is.
        """
        elements, rotations = self.elements, self.rotations
        if learned is not None and learned.any():
            known = self.span(learned)
            elements = elements[np.abs(elements @ known - known).max(axis=(1, 2)) < 1e-9]
            touched = np.abs(known).max(axis=0) > 1e-9
            rotations = tuple(group for group in rotations if not any(touched[row] for rows in group for row in rows))
        average = elements.mean(axis=0)
        average[[row for group in rotations for rows in group for row in rows]] = 0.0
        return np.array([np.abs(average @ D.T).max() > 1e-9 for D in self.directions], dtype=bool)

    @property
    def dual(self) -> np.ndarray:
        """(k, P, P): what the coordinates are inner products with."""
        return self.basis / np.einsum("kij,kij->k", self.basis, self.basis)[:, None, None]

    def coordinates(self, Q: np.ndarray) -> np.ndarray:
        """Coordinates (..., k) of the invariant part of Q (..., P, P)."""
        return np.einsum("kij,...ij->...k", self.dual, Q)

    def matrix(self, q: np.ndarray) -> np.ndarray:
        """The overlap (..., P, P) with coordinates q (..., k)."""
        return np.einsum("...k,kij->...ij", q, self.basis)

    def project(self, Q: np.ndarray) -> np.ndarray:
        """The group average of Q (..., P, P)."""
        return self.matrix(self.coordinates(Q))


def find_symmetry(
    link: LinkFunction, derivation: Derivation, *, exact: bool = True, further_fields: np.ndarray | None = None
) -> Symmetry:
    """LinkFunction -> Symmetry: candidates are read off the program and tried on random fields; records the finds.

    exact: whether log-ratios are seen where there are any, and not the output alone, as under noise.
    further_fields (n, P, T): where they are tried too.
    """
    trial = _Trial(link, exact, further_fields)
    discrete = _discrete(link, trial)
    rotations = tuple(group for group in _rank_groups(link) if trial.turns(group))
    signs = sign_group([f.matrix for f in discrete if f.invariant], link.fields)
    basis, parts = commutant([f.matrix for f in discrete], rotations, link.row_slices)
    elements = group([f.matrix for f in discrete if f.invariant], link.fields)
    gauges = tuple((rows[0], rows[1]) for rows in _head_rows(link) if len(rows) == 2 and trial.scales(rows))
    symmetry = Symmetry(signs, basis, parts, elements, rotations, gauges)
    further = _reflections(link, trial, symmetry)
    if further:
        basis, parts = commutant([f.matrix for f in discrete], rotations, link.row_slices, [f.matrix for f in further])
        elements = closure(elements, [f.matrix for f in further if f.invariant])
        symmetry = Symmetry(signs, basis, parts, elements, rotations, gauges)
    _record(link, [*discrete, *further], symmetry, derivation, len(trial.fields))
    return symmetry


class _Trial:
    """Outputs at random fields, against which candidates are tried."""

    def __init__(self, link: LinkFunction, exact: bool, more: np.ndarray | None) -> None:
        self.link, self.exact = link, exact
        usual = np.random.default_rng(0).standard_normal((_TRIALS, link.fields, link.tokens))
        self.fields = usual if more is None else np.concatenate([usual, more])
        self.values = self.observe(self.fields)

    def observe(self, Z: np.ndarray) -> np.ndarray:
        """What is seen, (trials, n): log-ratios where they are exact, the output itself under noise."""
        seen = self.link.raw(Z) if self.exact else self.link(Z)
        return np.asarray(seen).reshape(len(Z), -1)

    def __call__(self, matrix: np.ndarray, name: str) -> Found | None:
        moved = self.observe(matrix @ self.fields)
        if self._same(moved, self.values):
            return Found(matrix, name, True)
        return Found(matrix, name, False) if self._relabelled(moved) else None

    def turns(self, group: tuple[tuple[int, ...], ...]) -> bool:
        """Whether a rotation common to these groups of rows leaves the output unchanged."""
        size = len(group[0])
        turn = np.linalg.qr(np.random.default_rng(1).standard_normal((size, size)))[0]
        matrix = np.eye(self.link.fields)
        for rows in group:
            matrix[np.ix_(rows, rows)] = turn
        return self._same(self.observe(matrix @ self.fields), self.values)

    def scales(self, rows: tuple[tuple[int, ...], ...]) -> bool:
        """Whether M on the queries and M^{-T} on the keys of a head leave the output unchanged, M a random matrix."""
        queries, keys = rows
        gauge = np.eye(len(queries)) + 0.3 * np.random.default_rng(2).standard_normal((len(queries),) * 2)
        matrix = np.eye(self.link.fields)
        matrix[np.ix_(queries, queries)] = gauge
        matrix[np.ix_(keys, keys)] = np.linalg.inv(gauge).T
        return self._same(self.observe(matrix @ self.fields), self.values)

    def _same(self, a: np.ndarray, b: np.ndarray) -> bool:
        return bool((np.abs(a - b) <= _EQUAL * sizes(b)).all())

    def _relabelled(self, moved: np.ndarray) -> bool:
        """Whether every column of ``moved`` is a column of the values, up to sign, one to one."""
        free = list(range(moved.shape[1]))
        scale = sizes(self.values)
        for column in moved.T:
            for j in free:
                other = self.values[:, j]
                if any((np.abs(column - s * other) <= _EQUAL * scale[:, j]).all() for s in (1.0, -1.0)):
                    free.remove(j)
                    break
            else:
                return False
        return True


def _discrete(link: LinkFunction, trial: _Trial) -> list[Found]:
    """Flips of inputs, then exchanges of inputs of one shape (with their partners in the same head), that pass."""
    found = _flips(link, trial) + _exchanges(link, trial)
    if link.slices > 1:
        found += [one for candidate in _slice_exchanges(link) if (one := trial(*candidate)) is not None]
    return found


def _reflections(link: LinkFunction, trial: _Trial, symmetry: Symmetry) -> list[Found]:
    """Reflections of combinations of rows that pass, where signed exchanges of rows leave overlaps coupled."""
    found = []
    for part, directions in enumerate(symmetry.directions):
        if (symmetry.parts == part).sum() < 2 or link.slices > 1:
            continue
        for u, matrix in reflections(trial.observe, trial.fields, directions):
            sign = 1.0 if u[np.abs(u).argmax()] > 0 else -1.0
            terms = ((sign * u[r], link.labels[r]) for r in np.flatnonzero(np.abs(u) > 1e-9))
            name = " ".join(f"{'-' if x < 0 else '+'} {abs(x):.6g} {row}" for x, row in terms)
            one = trial(matrix, f"the reflection of {name.removeprefix('+ ')}")
            if one is not None:
                found.append(one)
    return found


def _input_rows(link: LinkFunction) -> list[list[int]]:
    """The rows of Z of each input."""
    return [[r for r, i in enumerate(link.row_inputs) if i == k] for k in range(len(link.program.inputs))]


def _flips(link: LinkFunction, trial: _Trial) -> list[Found]:
    """All sets of inputs while they are few; else single ones, then pairs and the whole of those that do not pass."""
    rows, names = _input_rows(link), [sp.latex(symbol) for symbol in link.program.inputs]

    def tried(flipped: tuple[int, ...]) -> Found | None:
        matrix = np.eye(link.fields)
        for k in flipped:
            matrix[rows[k], rows[k]] = -1.0
        return trial(matrix, ", ".join(f"${names[k]} \\to -{names[k]}$" for k in flipped))

    count = len(rows)
    if count <= FEW:
        sets = [s for size in range(1, count + 1) for s in itertools.combinations(range(count), size)]
        return [one for flipped in sets if (one := tried(flipped)) is not None]
    singles = [tried((k,)) for k in range(count)]
    left = [k for k, one in enumerate(singles) if one is None or not one.invariant]
    sets = [*itertools.combinations(left, 2), *([tuple(left)] if len(left) > 2 else [])]
    return [one for one in [*singles, *map(tried, sets)] if one is not None]


def _exchanges(link: LinkFunction, trial: _Trial) -> list[Found]:
    """Exchanges of heads; with many inputs, none of two heads that earlier exchanges join already."""
    rows, names = _input_rows(link), [sp.latex(symbol) for symbol in link.program.inputs]
    heads, found = _heads(link), list[Found]()
    joined = list(range(len(heads)))
    for (i, a), (j, b) in itertools.combinations(enumerate(heads), 2):
        if [len(rows[k]) for k in a] != [len(rows[k]) for k in b]:
            continue
        if len(rows) > FEW and joined[i] == joined[j]:
            continue
        matrix = np.eye(link.fields)
        for k, m in zip(a, b, strict=True):
            for r, s in zip(rows[k], rows[m], strict=True):
                matrix[[r, s]] = matrix[[s, r]]
        one = trial(
            matrix, "exchange of " + " and ".join(", ".join(f"${names[k]}$" for k in group) for group in (a, b))
        )
        if one is not None:
            found.append(one)
            if one.invariant:
                joined = [joined[i] if group == joined[j] else group for group in joined]
    return found


def _slice_exchanges(link: LinkFunction) -> Iterator[tuple[np.ndarray, str]]:
    """Exchanges of two slices of the embedding, in every layer at once."""
    for a, b in itertools.combinations(range(link.slices), 2):
        rows = [[r for r, s in enumerate(link.row_slices) if s == which] for which in (a, b)]
        matrix = np.eye(link.fields)
        for r, s in zip(*rows, strict=True):
            matrix[[r, s]] = matrix[[s, r]]
        yield matrix, f"exchange of slices {a + 1} and {b + 1}"


def _heads(link: LinkFunction) -> list[tuple[int, ...]]:
    """Inputs that belong together: those of one head of one layer."""
    groups: dict[tuple[int, int], list[int]] = {}
    for row in link.rows:
        own = groups.setdefault((row.layer, row.head), [])
        if row.input not in own:
            own.append(row.input)
    return [tuple(group) for group in groups.values()]


def _head_rows(link: LinkFunction) -> list[tuple[tuple[int, ...], ...]]:
    """Rows of each head, input by input, where all inputs have as many."""
    heads = [tuple(tuple(r for r, i in enumerate(link.row_inputs) if i == k) for k in group) for group in _heads(link)]
    return [rows for rows in heads if len({len(own) for own in rows}) == 1]


def _rank_groups(link: LinkFunction) -> list[tuple[tuple[int, ...], ...]]:
    """Rows of each head that may be turned together: those of its inputs of rank two and more."""
    return [rows for rows in _head_rows(link) if len(rows[0]) > 1]


_GAUGE = Formula(
    None,
    r"(Uq,\, Uk) \to (Uq\, M,\ Uk\, M^{-\top}), \qquad M \in GL(r)",
    "the gauge of untied weights, of queries $Uq$ and keys $Uk$: the output is blind to it; the prior is not, and "
    "fixes it up to rotations",
)


def _record(link: LinkFunction, found: list[Found], symmetry: Symmetry, derivation: Derivation, trials: int) -> None:
    kept = generating([f for f in found if f.invariant], link.fields)
    relabelled = generating([f for f in found if not f.invariant], link.fields)
    turned = len(symmetry.rotations)
    gauged = [f"the gauge of {' and '.join(link.labels[rows[0]] for rows in pair)}" for pair in symmetry.gauges]
    mixed = (np.abs(symmetry.elements - np.round(symmetry.elements)) > 1e-9).any()
    flips = all((element == np.diag(np.diag(element))).all() for element in symmetry.elements)
    one = "flip of signs" if flips else "signed exchange"
    several = "flips of signs" if flips else "signed exchanges"
    size = len(symmetry.elements) - 1
    named = counted(size, one, f"{several} and reflections of combinations of rows" if mixed else several)
    group = f"the identity and {named}" if size else "the identity alone"
    blocks = "block" if symmetry.projectors else "overlap"
    whole = ", learned as a whole" if len(symmetry.basis) == 1 else " of rows, each learned as a whole"
    each = whole if symmetry.projectors else ", which are coupled"
    derivation.add(
        Step(
            "symmetry",
            "What the output cannot see",
            f"Flips of the fields and exchanges of heads and layers were tried on {trials} random fields; "
            "flips that passed were pushed through the recursion, assignment by assignment. The output "
            f"is unchanged under a group: {group}"
            + (f" and the rotations of {counted(turned, 'head')}" if turned else "")
            + (f", under the gauges of {counted(len(symmetry.gauges), 'untied head')}" if symmetry.gauges else "")
            + (f", and only relabelled under {len(relabelled)} more" if relabelled else "")
            + f". This leaves {counted(len(symmetry.basis), blocks)}{each}; all other overlaps vanish.",
            tuple(Formula(None, rf"{_set(f.name)}\quad\text{{leaves }} y \text{{ unchanged}}") for f in kept)
            + ((_GAUGE,) if symmetry.gauges else ()),
            tuple((f"$y$ is unchanged under {f.name}", _how(link, f, trials)) for f in kept)
            + tuple((f"$y$ is unchanged under {n}", f"equal outputs at {trials} random fields") for n in gauged)
            + tuple((f"$y$ is relabelled under {f.name}", f"at {trials} random fields") for f in relabelled),
        )
    )


def _set(name: str) -> str:
    """Words with inline formulas as one formula."""
    words, formulas = name.split("$")[::2], name.split("$")[1::2]
    texts = [rf"\text{{{word.replace('_', chr(92) + '_')}}}" if word else "" for word in words]
    return "".join(piece for pair in zip(texts, [*formulas, ""], strict=True) for piece in pair)


def _how(link: LinkFunction, found: Found, trials: int) -> str:
    """How an invariance is known: by proof where it is a flip that the program carries through, else by trial."""
    if is_flip(found.matrix):
        signs = np.diag(found.matrix)
        flipped = {i for i, s in zip(link.row_inputs, signs, strict=True) if s < 0}
        if flip_leaves(link.program, tuple(flipped)):
            return "pushed through the program, assignment by assignment"
    return f"equal outputs at {trials} random fields"


def flip_leaves(program: Program, flipped: tuple[int, ...]) -> bool:
    """Whether changing the sign of these inputs leaves the output unchanged, identically.

    Every target keeps its value or changes sign; anything else is no proof.
    """
    change: dict[sp.Basic, sp.Basic] = {program.inputs[i]: -program.inputs[i] for i in flipped}
    for assign in program.assigns:
        value = assign.value.doit()
        new = assign.value.xreplace(change).doit()
        if new == value:
            continue
        if new == (-value).doit():
            change[assign.target] = -assign.target
            continue
        return False
    return not any(output in change for output in program.outputs)
