"""A threshold: where the learning of some directions begins, or is complete."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base.solution import short

# Kinds of thresholds, in the order in which a table shows them.
KINDS = ("trivial", "weak", "hard", "spinodal", "information", "perfect_stable", "perfect_amp")


@dataclass(frozen=True)
class Threshold:
    """One threshold.

    kind: one of KINDS.  layers: counted from 1.  subspace (dim, P): the directions, one a row.
    alpha: math.inf for a hard direction, 0 for a trivial one.  error: one standard error over the scrambles; of a first
    threshold by quadrature over y what refinement changes, twice on a lattice, plus what the tolerance of the inner
    integrals leaves; of "perfect_amp" at least how closely the branch is followed, math.inf where one scramble alone
    showed it; 0 if exact.  Q (P, P): the overlap just below.  order: of a hard direction, the first order of its
    Hermite expansion that does not vanish (None where none was clear up to order six), given nothing else.  names: of
    the rows that take part.  samples: of one evaluation of the map that it was measured on, None where it was not
    sampled.
    """

    kind: str
    layers: tuple[int, ...]
    subspace: np.ndarray
    alpha: float
    error: float
    Q: np.ndarray
    order: int | None = None
    names: tuple[str, ...] = ()
    samples: int | None = None

    def __repr__(self) -> str:
        alpha = short(self.alpha) if not self.error else f"{short(self.alpha)} +- {short(self.error)}"
        return f"Threshold({self.kind}, {', '.join(self.names)}: alpha = {alpha})"
