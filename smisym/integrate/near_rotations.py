"""Moments of orthogonal matrices of three rows under exp(tr(A^T O) - tr(S O W O^T) / 2), by products of nodes.

Of the quadratic form only what W differs by from a multiple of the identity counts.  At the mode O_0 it is split into a
line and what is left, of second order in O - O_0:

    tr(A^T O) - tr(S O W O^T) / 2 = tr(B^T O) - tr(S (O - O_0) dW (O - O_0)^T) / 2 + constant,   B = A - S O_0 dW.

Under the line alone moments are integrals over one variable and two angles (:mod:`smisym.integrate.rotations`), whose
nodes are spread as that density is: the variable by a logistic function, each angle by a map of the circle to itself
that takes the mass around zero apart.  The rest is evaluated at the products of these nodes.  All rules are trapezoid
rules of functions that are smooth and periodic, or vanish at either end: what one misses is told by those of its nodes
of even and of odd places, in all seven ways.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from smisym.base import patience
from smisym.integrate.rotations import Turned, angular, carried
from smisym.kernels.turns import compiled_turns


@dataclass(frozen=True)
class Rule:
    """step: of the logistic variable.  left_out: the share of mass at either end.  nodes: of half a turn, a multiple of
    four, as those of even places miss what all do where the integrand has half of the period, and their number is odd.
    missed: about what it misses where the quadratic form is of order one."""

    step: float
    left_out: float
    nodes: int
    missed: float


RULES = (Rule(0.6, 1e-7, 16, 1e-3), Rule(0.45, 1e-10, 24, 1e-5), Rule(0.3, 1e-13, 36, 0.0))
# What half of the nodes miss, to the power 3/2, times this is what all do: two and a half were seen.
_CARRIED = 4.0
# Steps towards a maximum, and the flips of axes that these begin with.
_STEPS, _FLIPS = 16, np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
# From how far apart two maxima are two, how much lower one tells nothing, and up to which change of the quadratic form
# they are no peaks of their own.
_APART, _LIKELY, _SLIGHT = 0.3, 14.0, 8.0
# The eight parities of nodes: signs of the seven sublattices of half of them.
_BITS = np.arange(1, 8)[:, None] & np.arange(8)
_SIGNS = 1.0 - 2.0 * (np.array([[bin(bits).count("1") for bits in row] for row in _BITS]) % 2)
_UPPER = list(itertools.combinations_with_replacement(range(9), 2))


def nearly_turned(A: np.ndarray, S: np.ndarray, W: np.ndarray, rtol: float) -> Turned:
    """Moments of O in O(3), A, S, W (n, 3, 3), by the first rule that misses no more than rtol, or by the last.

    S, W: symmetric, without negative eigenvalues.  Where another maximum is as likely, ``missed`` is infinite.
    """
    n = len(A)
    split = _split(A, S, W)
    sums, missed, nodes = np.zeros((2 * n, 63)), np.full(2 * n, np.inf), np.zeros(2 * n)
    left = np.flatnonzero(np.tile(split.alone, 2))
    for rule in RULES:
        if rule.missed <= rtol or rule is RULES[-1]:
            sums[left], count = _summed(split, left, rule)
            missed[left] = _missed(sums[left], split.slight[left % n]) + 3 * rule.left_out
            nodes[left] += count
            left = left[~(missed[left] <= rtol)]
        if not len(left):
            break
    return _finished(split, sums, missed, nodes)


@dataclass(frozen=True)
class _Split:
    """Rotations of all n samples, then reflections.

    U, s, Vt: of B, s (2 n, 3) descending, the last with the sign that makes M = U^T O V a rotation.  D0 (2 n, 3, 3): M
    at the mode.  S, W: in the same axes, of W what it differs by from a multiple of the identity.  constant (2 n,).
    slight, alone (n,): whether the quadratic form makes no peaks, and whether no other maximum is as likely.
    """

    U: np.ndarray
    s: np.ndarray
    Vt: np.ndarray
    D0: np.ndarray
    S: np.ndarray
    W: np.ndarray
    constant: np.ndarray
    slight: np.ndarray
    alone: np.ndarray


def _split(A: np.ndarray, S: np.ndarray, W: np.ndarray) -> _Split:
    n = len(A)
    sign = np.repeat([1.0, -1.0], n)
    A, S, W = (np.concatenate([each, each]) for each in (A, S, W))
    mode, alone = _modes(A, S, W, sign)
    slight = np.linalg.eigvalsh(S[:n])[:, -1] * np.ptp(np.linalg.eigvalsh(W[:n]), axis=1) <= _SLIGHT
    size = np.trace(W, axis1=1, axis2=2)[:, None, None] / 3 * np.eye(3)
    dW = W - size
    along = S @ mode @ dW
    U, s, Vt = _oriented(A - along, sign)
    transposed = np.swapaxes(U, 1, 2), np.swapaxes(Vt, 1, 2)
    constant = 0.5 * (np.einsum("nij,nij->n", along, mode) - size[:, 0, 0] * np.trace(S, axis1=1, axis2=2))
    return _Split(
        U, s, Vt, transposed[0] @ mode @ transposed[1], transposed[0] @ S @ U, Vt @ dW @ transposed[1], constant,
        slight, slight | alone[:n] & alone[n:],
    )  # fmt: skip


def _modes(A: np.ndarray, S: np.ndarray, W: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best maximum of each (n, 3, 3), and whether no other is nearly as good (n,).

    From the four matrices that flips of A's axes make of the best one without the quadratic form.  With the largest
    eigenvalue taken out of W the exponent is convex in O, and the best matrix for its tangent is better.
    """
    n = len(A)
    U, _, Vt = _oriented(A, sign)
    tried = (U[:, None] * _FLIPS[:, None, :]) @ Vt[:, None]
    steep = (W - np.linalg.eigvalsh(W)[:, -1, None, None] * np.eye(3))[:, None]
    for _ in range(_STEPS):
        U, _, Vt = _oriented((A[:, None] - S[:, None] @ tried @ steep).reshape(-1, 3, 3), np.repeat(sign, 4))
        tried = (U @ Vt).reshape(n, 4, 3, 3)
    height = np.einsum("nij,nfij->nf", A, tried)
    height -= 0.5 * np.einsum("nij,nfjk,nkl,nfil->nf", S, tried, W, tried, optimize=True)
    best = height.argmax(axis=1)
    mode = tried[np.arange(n), best]
    apart = np.linalg.norm(tried - mode[:, None], axis=(2, 3)) > _APART
    # Rotations and reflections of a sample are weighed against one another.
    top = np.tile(height.reshape(2, -1, 4).max(axis=(0, 2)), 2)
    return mode, ~(apart & (height > (top - _LIKELY)[:, None])).any(axis=1)


def _oriented(A: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular values of A (n, 3, 3), the last with a sign, so that U Vt has the determinant ``sign`` (n,)."""
    U, s, Vt = np.linalg.svd(A)
    other = np.where(np.linalg.det(U) * np.linalg.det(Vt) * sign < 0, -1.0, 1.0)
    s[:, 2] *= other
    Vt[:, 2] *= other[:, None]
    return U, s, Vt


# ----------------------------------------------------------------------------------------------------------- the sums


@dataclass(frozen=True)
class _Nodes:
    """Of one sample, as :func:`smisym.kernels.turns.compiled_turns` takes them."""

    log_x: np.ndarray
    root_x: np.ndarray
    root_y: np.ndarray
    log_a: np.ndarray
    cos_a: np.ndarray
    sin_a: np.ndarray
    log_b: np.ndarray
    cos_b: np.ndarray
    sin_b: np.ndarray
    starts: np.ndarray


def _summed(split: _Split, which: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """(n, 63): what the loops find, sample by sample; and of how many nodes (n,)."""
    run = compiled_turns()
    found, count = np.zeros((len(which), 63)), np.zeros(len(which))
    for k, i in enumerate(which):
        patience.check()
        nodes = _nodes(split.s[i], rule)
        count[k] = nodes.log_a.size * nodes.log_b.shape[1]
        given = split.D0[i], split.S[i], split.W[i]
        if run is None:
            found[k] = _in_arrays(nodes, *given)
        else:
            run(*vars(nodes).values(), *(np.ascontiguousarray(matrix) for matrix in given), found[k])
    return found, count


def _nodes(s: np.ndarray, rule: Rule) -> _Nodes:
    at, own = angular(s[None], rule.step, rule.left_out)
    at = at[0]
    y, x = 1 / (1 + np.exp(-at)), 1 / (1 + np.exp(at))
    log_a, cos_a, sin_a = _circle(x * (s[0] + s[1]), rule.nodes)
    log_b, cos_b, sin_b = _circle(y * (s[0] - s[1]), rule.nodes)
    # A quaternion and its negative are one rotation: half a turn of one angle is enough.  Even places come first.
    half = rule.nodes // 2
    even, odd = np.arange(0, rule.nodes, 2), np.arange(1, rule.nodes, 2)
    places, sign = np.concatenate([even, even, odd, odd]), np.repeat([1.0, -1.0, 1.0, -1.0], half)
    log_x, starts = np.log(x * y * own[0]) - 2 * y * (s[1] + s[2]), np.array([0, rule.nodes, 2 * rule.nodes])
    log_b, cos_b, sin_b = log_b[:, places] - np.log(2), cos_b[:, places] * sign, sin_b[:, places] * sign
    return _Nodes(log_x, np.sqrt(x), np.sqrt(y), log_a, cos_a, sin_a, log_b, cos_b, sin_b, starts)


def _circle(concentration: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes of angles t / 2 with density exp(concentration (cos t - 1)), (N, nodes): log-weights, cosines, sines.

    tan(t / 2) = tan(p / 2) / sqrt(1 + concentration) at equal steps of p, of which those of even places are not the
    mirror image of those of odd ones.
    """
    half = np.pi * np.arange(nodes) / nodes - 0.5 * np.pi
    stretch = np.sqrt(1 + concentration)[:, None]
    sine, cosine = np.sin(half), stretch * np.cos(half)
    # At half a turn the cosine is zero, whatever rounding makes of it.
    cosine[:, 0] = 0.0
    length = np.hypot(sine, cosine)
    sine, cosine = sine / length, cosine / length
    log_weight = np.log(stretch / (length * length * nodes)) - 2 * concentration[:, None] * sine * sine
    return log_weight, cosine, sine


def _in_arrays(nodes: _Nodes, D0: np.ndarray, S: np.ndarray, W: np.ndarray) -> np.ndarray:
    """What the loops do."""
    (N, A), B = nodes.log_a.shape, nodes.log_b.shape[1]
    p0, p3 = (nodes.root_x[:, None, None] * part[:, :, None] for part in (nodes.cos_a, nodes.sin_a))
    p1, p2 = (nodes.root_y[:, None, None] * part[:, None, :] for part in (nodes.cos_b, nodes.sin_b))
    M = np.empty((3, 3, N, A, B))
    M[0, 0], M[0, 1], M[0, 2] = p0**2 + p1**2 - p2**2 - p3**2, 2 * (p1 * p2 - p0 * p3), 2 * (p1 * p3 + p0 * p2)
    M[1, 0], M[1, 1], M[1, 2] = 2 * (p1 * p2 + p0 * p3), p0**2 - p1**2 + p2**2 - p3**2, 2 * (p2 * p3 - p0 * p1)
    M[2, 0], M[2, 1], M[2, 2] = 2 * (p1 * p3 - p0 * p2), 2 * (p2 * p3 + p0 * p1), p0**2 - p1**2 - p2**2 + p3**2
    parity = 4 * (np.arange(N)[:, None, None] % 2) + 2 * (np.arange(A)[:, None] % 2) + (np.arange(B) >= nodes.starts[1])
    D = M - D0[:, :, None, None, None]
    square = np.einsum("kj...,jm...->km...", S, D) * np.einsum("kj...,jm...->km...", D, W)
    log_weight = nodes.log_x[:, None, None] + nodes.log_a[:, :, None] + nodes.log_b[:, None, :]
    log_weight = log_weight - 0.5 * square.sum(axis=(0, 1))
    top, D = log_weight.max(), D.reshape(9, -1)
    v = np.exp(log_weight - top).ravel()
    second = (D * v) @ D.T
    return np.r_[top, np.bincount(parity.ravel(), v, 8), D @ v, [second[pair] for pair in _UPPER]]


def _missed(sums: np.ndarray, slight: np.ndarray) -> np.ndarray:
    """(n,): what sums over half of the nodes miss, in all seven ways; carried over to all nodes where the form is
    slight (n,), since elsewhere the integrand is not the one that nodes are spread for."""
    mass = sums[:, 1:9]
    with np.errstate(divide="ignore", invalid="ignore"):
        half = (np.abs(mass @ _SIGNS.T) / mass.sum(axis=1, keepdims=True)).max(axis=1)
    carried_over = np.where(slight, np.minimum(_CARRIED * half**1.5, half), half)
    return np.asarray(np.nan_to_num(carried_over, nan=np.inf))


def _finished(split: _Split, sums: np.ndarray, missed: np.ndarray, nodes: np.ndarray) -> Turned:
    """Moments of O = U M V^T from sums over D = M - D0, of rotations and of reflections together."""
    total = sums[:, 1:9].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        D = (sums[:, 9:18] / total[:, None]).reshape(-1, 3, 3)
        second = np.empty((len(sums), 9, 9))
        for k, (i, j) in enumerate(_UPPER):
            second[:, i, j] = second[:, j, i] = sums[:, 18 + k] / total
        log_norm = np.log(total) + sums[:, 0] + split.s.sum(axis=1) + split.constant
    flat, known = D.reshape(-1, 9), split.D0.reshape(-1, 9)
    second += known[:, :, None] * (flat + known)[:, None, :] + flat[:, :, None] * known[:, None, :]
    return _together(carried(split.U, split.Vt, log_norm, D + split.D0, second, missed, nodes))


def _together(both: Turned) -> Turned:
    """Rotations, the first half, and reflections."""
    log_norm, mean, second, missed, nodes = (values.reshape(2, -1, *values.shape[1:]) for values in vars(both).values())
    whole = np.logaddexp(*log_norm)
    with np.errstate(invalid="ignore"):
        share = np.exp(log_norm - whole)
    return Turned(
        whole, np.einsum("cn,cnai->nai", share, mean), np.einsum("cn,cnaibj->naibj", share, second),
        np.nan_to_num((share * missed).sum(axis=0), nan=np.inf), nodes.sum(axis=0),
    )  # fmt: skip
