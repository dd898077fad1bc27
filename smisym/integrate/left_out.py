"""Cells that a lattice does not refine, and cells whose nodes may have seen nothing: what they may hold.

Everything is relative to ``total`` (S,), the log of the sum of f over the nodes of a posterior's present level.
"""

from __future__ import annotations

import numpy as np

# How far from the mean, in standard deviations, mass may lie that is not where it was found.
DISTANCE = 5.0
# Largest change of a residual between neighbouring nodes by which these meet a maximum, however it lies: one between
# nodes is half of this from the nearest one at worst, and a quarter as a rule.  Measured on broad and narrow Gaussians
# of equal mass in one to four dimensions: with 10 some of the narrow ones are passed by.
BLIND = 7.0
# Logs by which cells that are left out lie below what may be negligible: a thousand of them may be.
FAINT = 3.0


class LeftOut:
    """What was left out of the posteriors of a batch.

    least (S,): log f below which a cell of the present level counts for nothing, beside the maximum and beside the sum.
    depth: logs below the maximum at which cells are dropped.  nodes: of one cell.
    """

    def __init__(self, samples: int, dim: int, nodes: int, depth: float) -> None:
        self.dim, self.nodes, self.depth = dim, nodes, depth
        self.least = np.full(samples, -np.inf)
        # Log of what dropped cells hold by their highest nodes, as a sum over nodes of the present level.
        self._dropped = np.full(samples, -np.inf)

    def begin(self, who: np.ndarray, best: np.ndarray) -> None:
        self.least[who] = best - self.depth - FAINT

    def share(self, total: np.ndarray, log_f: np.ndarray) -> np.ndarray:
        """(C,) of all that was found, if log f is this at all nodes of a cell; where nothing was found, very much."""
        with np.errstate(invalid="ignore"):
            log_share = np.nan_to_num(log_f - total, nan=0.0, posinf=50.0)
        return np.asarray(self.nodes * np.exp(np.minimum(log_share, 50.0)))

    def matters(self, total: np.ndarray, highest: np.ndarray) -> np.ndarray:
        """(C,) whether a cell must be refined however far it lies below the maximum, as broad ones beside narrow."""
        return self.share(total, highest) > np.exp(-self.depth - FAINT)

    def unseen(self, who: np.ndarray, total: np.ndarray, owner: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Error of each posterior owed to cells whose nodes may pass by a ridge: what their bounds (C,) allow."""
        held = np.bincount(owner, self.share(total[owner], bound), len(total))[who]
        return np.minimum(DISTANCE * held, 1.0)

    def beyond(
        self, who: np.ndarray, total: np.ndarray, owner: np.ndarray, highest: np.ndarray, width: np.ndarray
    ) -> np.ndarray:
        """Error of each posterior owed to what lies beyond cells at the border, of these highest nodes and widths (C,):
        as much as there is there in two units (in one, of 120 posteriors one is off by 1.14 of its error)."""
        held = np.bincount(owner, 2 * self.share(total[owner], highest) / width, len(total))[who]
        return np.minimum(DISTANCE * held, 1.0)

    def drop(self, who: np.ndarray, total: np.ndarray, owner: np.ndarray, highest: np.ndarray) -> np.ndarray:
        """Error of each posterior owed to cells that are not refined: now, of these highest nodes (C,), and before."""
        lost = np.bincount(owner, self.share(total[owner], highest), len(total))[who]
        # Where nothing is found any more, all of it was dropped: an infinite share.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._dropped[who] = np.logaddexp(self._dropped[who], np.log(lost) + total[who])
            return DISTANCE * np.nan_to_num(np.exp(self._dropped[who] - total[who]), nan=1.0)

    def go_on(self, who: np.ndarray, total: np.ndarray, best: np.ndarray) -> None:
        """The next level has 2^dim times as many nodes."""
        more = self.dim * np.log(2.0)
        self._dropped[who] += more
        self.least[who] = np.minimum(best, total[who] + more - np.log(self.nodes)) - self.depth - FAINT
