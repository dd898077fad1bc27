"""The overlap map where little is learned of some rows: its value from its derivative.

Of rows of which nothing is learned the map gives nothing back, E_S(Q) = 0 where Q_S = 0, so that along the ray there

    E_S(Q) = int_0^1 dE_S(Q - Q_S + t Q_S)[Q_S] dt.

The derivative, a mean over outputs, is known much better than E itself, to which the part of omega along these rows
adds its own noise: of two layers on two tokens 512 points leave 5 % in E_22 / Q_22 at Q = (0, 0.0025) and 0.8 % in its
derivative, at (0.0025, 0.9737) 3.3 and 1.6 % in those of E_11.  Without it a map also contradicts its own derivative
there: just above a threshold, where an overlap is the small excess of growth over one, it stood where neither was one,
and kicks died that the derivative lets grow.

As outputs that show most are known first, the derivative falls like a power of Q_S between one half and one from what
it is at Q_S = 0.  Lobatto's rule in t^{1/2}, whose node at 0 has no weight, is exact for 1, t^{1/2}, t, t^{3/2} and
t^2, and one of its three nodes is t = 1, where the derivative is known anyway.  Of y = |z| it leaves 5e-5 of E or less,
which is no more than what 131072 samples can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from smisym.base.matrices import square_root
from smisym.link.symmetry import Symmetry
from smisym.prior import remaining
from smisym.theory.estimate import Estimate

# The nodes of the rule inside, and all weights; the last node is at 1.
_ROOT = math.sqrt(5.0)
_INSIDE, _WEIGHTS = (0.3 - _ROOT / 10, 0.3 + _ROOT / 10), ((5 - _ROOT) / 12, (5 + _ROOT) / 12, 1 / 6)
# Largest overlaps of rows up to which that is done, and from which on it is not; in between a part of it, which falls
# slowly: where it fell from 0.02 to 0.04, few points had fixed points of their own between slopes and averages.
_WHOLE, _END = 0.03, 0.15
# Overlaps below which nothing is learned.
_NOTHING = 1e-12


def from_slopes(
    symmetry: Symmetry, Q: np.ndarray, scramble: int, at: Callable[[int, np.ndarray], Estimate]
) -> Estimate:
    """The estimate of a scramble at Q (P, P) with what it says of rows that are learned a little from its slopes.

    at: estimates as they are, at any overlap.
    """
    found = at(scramble, Q)
    for small in _small(symmetry, Q):
        along = [*(at(scramble, Q - (1 - t) * small.Q) for t in _INSIDE), found]
        E = np.tensordot(_WEIGHTS, [small.fed(there) for there in along], axes=1)
        white = found.white + small.share * (small.whitened(E, found) - small.span @ found.white @ small.span)
        found = replace(found, white=white, accurate=all(there.accurate for there in along))
        found.white.flags.writeable = False
    return found


@dataclass(frozen=True)
class _Small:
    """Rows of which little is learned, and nothing where Q has nothing of them.

    rows (d, P): an orthonormal basis.  Q (P, P): what is learned of them.  share: of E that is to come from slopes.
    """

    rows: np.ndarray
    Q: np.ndarray
    share: float

    @property
    def span(self) -> np.ndarray:
        return np.asarray(self.rows.T @ self.rows)

    def _root(self, at: np.ndarray) -> np.ndarray:
        """V^{1/2} of these rows (d, d): of others next to nothing may be left, and rounding would be all there is."""
        return square_root(self.rows @ remaining(at) @ self.rows.T)

    def fed(self, estimate: Estimate) -> np.ndarray:
        """The derivative of E along Q, of these rows (d, d)."""
        inverse = np.linalg.inv(self._root(estimate.Q))
        inward = self.rows.T @ inverse @ self.rows
        made = np.einsum("paqb,ab->pq", estimate.slope, inward @ self.Q @ inward)
        made = inverse @ self.rows @ made @ self.rows.T @ inverse
        return np.asarray(0.5 * (made + made.T))

    def whitened(self, E: np.ndarray, estimate: Estimate) -> np.ndarray:
        """V^{1/2} E V^{1/2} (P, P) of E (d, d)."""
        root = self._root(estimate.Q)
        return np.asarray(self.rows.T @ root @ E @ root @ self.rows)


def _small(symmetry: Symmetry, Q: np.ndarray) -> list[_Small]:
    """Classes of rows that are learned together, a little."""
    top = np.array([np.linalg.eigvalsh(D @ Q @ D.T)[-1] for D in symmetry.directions])
    learned = top > _NOTHING
    if not (learned & (top < _END)).any():
        return []
    found = []
    for members in _classes(symmetry, learned):
        most = top[members].max()
        if most >= _END or (members & symmetry.may_be_shown(learned & ~members)).any():
            continue
        x = min(math.log(_END / most) / math.log(_END / _WHOLE), 1.0)
        span = symmetry.span(members)
        rows = np.concatenate([symmetry.directions[k] for k in np.flatnonzero(members)])
        found.append(_Small(rows, span @ Q @ span, float(x * x * (3 - 2 * x))))
    return found


def _classes(symmetry: Symmetry, learned: np.ndarray) -> list[np.ndarray]:
    """Of learned parts those that go together, (parts,) each: outputs may tell of one where another is learned."""
    alone = np.eye(len(learned), dtype=bool)
    joined = np.array([symmetry.may_be_shown(one) for one in alone]) & ~symmetry.may_be_shown()
    joined = (joined | joined.T | alone) & np.outer(learned, learned)
    for _ in learned:  # through others as well
        joined = joined @ joined
    return [joined[k] for k in np.flatnonzero(learned) if not joined[k, :k].any()]
