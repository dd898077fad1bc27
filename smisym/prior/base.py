"""What a law of the weights answers to the solvers."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import final

import numpy as np

from smisym.base.derivation import Step


def remaining(Q: np.ndarray) -> np.ndarray:
    """V = I - Q (..., P, P), what is left to learn at an overlap; and the overlap at which V is left."""
    return np.asarray(np.eye(Q.shape[-1]) - Q)


@dataclass(frozen=True)
class Law:
    """The joint law of fields Z and estimated fields omega, (P, T) each with independent columns, at one overlap.

    scale (P, P): Z = scale @ normals.  gain, noise (P, P): omega = gain @ Z + noise @ other normals.
    V (P, P): the covariance of Z given omega.  units (P, P): U with U V^{-1} U^T = I, which takes g_out to where it is
    of order one however small V is: U g g^T U^T is that of V'^{1/2} E V'^{1/2}, V' = I - Q and E in units of the prior.
    back (P, P): U^T.
    """

    scale: np.ndarray
    gain: np.ndarray
    noise: np.ndarray
    V: np.ndarray
    units: np.ndarray
    back: np.ndarray


@dataclass(frozen=True)
class Response:
    """What the prior makes of what the data tell, at one overlap with V = I - Q.

    V' is what is left to learn afterwards, V^{-1/2} V' V^{-1/2} = vectors diag(1 / values) vectors^T.
    half (P, P): log(V^{-1/2} V' V^{-1/2}) moves by -half M half^T as the data tell M more, in units of V^{1/2}.
    rest (P, P): what the data must tell, V^{1/2} alpha E V^{1/2}, so that V stays as it is; I - V for Gaussian weights.
    still (P, P): still^2 is half there, and between two of it the derivative of the map is symmetric; I for them.
    """

    vectors: np.ndarray
    values: np.ndarray
    half: np.ndarray
    still: np.ndarray
    rest: np.ndarray


class Prior(abc.ABC):
    """The law of the weights W (P, own), and how samples count against it.

    A kind of prior gives the abstract answers.  Solvers ask nothing else of the weights; overlaps Q (P, P) are in units
    of the prior, 0 <= Q <= I.
    """

    # ---- how it is laid out

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """P, the number of rows of W, one a field."""

    @property
    @abc.abstractmethod
    def row_slices(self) -> tuple[int, ...]:
        """The part of the embedding, counted from 0, that each row lives on; rows on different parts have no
        overlap."""

    @property
    @abc.abstractmethod
    def coupled(self) -> bool:
        """Whether it answers where overlaps of different rows are coupled."""

    @property
    @abc.abstractmethod
    def multiplicity(self) -> int:
        """At alpha there are multiplicity * alpha samples for each entry of a row of W."""

    @property
    def reads(self) -> str:
        """What the columns of Z are, in words: inputs that see the weights."""
        return "tokens"

    @property
    def entries(self) -> str:
        """How many entries a row has, as a formula: D, or D/H on H slices; M for those of a square matrix of extensive
        rank, whose tokens have another dimension."""
        if self.matrix_entries:
            return "M"
        return "D" if self.multiplicity == 1 else f"D/{self.multiplicity}"

    @property
    def matrix_entries(self) -> str:
        """M, of a matrix that acts on tokens of dimension d, as a formula; empty for rows of weights."""
        return ""

    @abc.abstractmethod
    def tokens(self, columns: int) -> int:
        """How many tokens there are where the fields have so many columns."""

    @abc.abstractmethod
    def samples(self, alpha: float, dim: int) -> float:
        """How many samples alpha stands for where tokens have dimension D."""

    @property
    @abc.abstractmethod
    def unit(self) -> str:
        """What alpha is, in short: N/D."""

    @abc.abstractmethod
    def alpha(self, samples: int, dim: int) -> float:
        """What alpha so many samples are."""

    @abc.abstractmethod
    def describe(self) -> str:
        """The law in a few words."""

    @property
    @abc.abstractmethod
    def finite_size(self) -> str:
        """Why runs on data of dimension D are off by more than some 1/D, in words; empty where they are not."""

    @property
    @abc.abstractmethod
    def precision(self) -> np.ndarray | None:
        """(P, P): the inverse covariance of a column of W where columns are independent Gaussians, so that normal
        equations give their posterior; else None."""

    @abc.abstractmethod
    def respects(self, change: np.ndarray) -> bool:
        """Whether a linear change (P, P) of the rows leaves the law as it is."""

    @abc.abstractmethod
    def steps(self) -> tuple[Step, ...]:
        """What the derivation says of it; nothing of standard normal weights, of which it speaks anyway."""

    # ---- D to infinity

    @abc.abstractmethod
    def law(self, Q: np.ndarray) -> Law:
        """Of fields and estimated fields at an overlap; InputError unless 0 <= Q < I."""

    @abc.abstractmethod
    def roots(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(A, B), (P, P) each: omega = A xi and Z = omega + B u have the same joint law; exact also at Q = I."""

    @abc.abstractmethod
    def response(self, V: np.ndarray, told: np.ndarray, side_information: float) -> Response:
        """To ``told`` (P, P), V^{1/2} alpha E V^{1/2}, and side information sqrt(lam) W + noise, where V is left."""

    @abc.abstractmethod
    def overlap(self, Q_hat: np.ndarray) -> np.ndarray:
        """Q (P, P), what is known of the weights where the data tell Q_hat (P, P) of them, in units of the prior; of
        weights whose rows are not coupled its diagonal is read alone."""

    @abc.abstractmethod
    def conjugate(self, Q: np.ndarray) -> np.ndarray:
        """Q_hat (P, P) of which Q is made, the inverse of :meth:`overlap`."""

    @abc.abstractmethod
    def entropy(self, Q: np.ndarray) -> float:
        """Its term of the free entropy, whose derivative is -(V^{-1} - I) / 2 over the multiplicity where it is
        Gaussian."""

    @abc.abstractmethod
    def dimension(self, span: np.ndarray) -> float:
        """Of how many numbers a column of W in some directions (d, P) is made, where next to nothing is left of them:
        d, or less where the law leaves less open.  What is left then falls by that much, from V to V * dimension / d
        / told, where the data tell ``told`` in each."""

    # ---- D as it is

    @abc.abstractmethod
    def fitting(self, dim: int) -> int:
        """The dimension of tokens, near this one and at least 1, on which weights can be laid out."""

    @abc.abstractmethod
    def row_dimension(self, dim: int) -> int:
        """Entries of a row of W where tokens have dimension D; InputError where D cannot be divided so."""

    @abc.abstractmethod
    def draw(self, dim: int, rng: np.random.Generator, *, normalised: bool = False) -> np.ndarray:
        """W (P, own); normalised: rows of exactly the norm that they have on average."""

    @abc.abstractmethod
    def start(self, dim: int, strength: float, rng: np.random.Generator) -> np.ndarray:
        """An estimate (P, own) that knows next to nothing: the mean, and ``strength`` times a draw less the mean."""

    @abc.abstractmethod
    def in_units(self, W: np.ndarray) -> np.ndarray:
        """Weights (P, own), or an estimate of them, less their mean and in units of the prior: what overlaps are taken
        of."""

    @abc.abstractmethod
    def project(self, W: np.ndarray, X: np.ndarray, tokens: int) -> np.ndarray:
        """Fields (N, P, columns) of weights (P, own) on tokens X (N tokens, D)."""

    @abc.abstractmethod
    def back_project(self, g: np.ndarray, X: np.ndarray) -> np.ndarray:
        """The transpose: (P, own) from g (N, P, columns) and X (N tokens, D)."""

    @abc.abstractmethod
    def denoise(self, A: np.ndarray, b: np.ndarray, side_information: float) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (P, own) and covariance (P, P) of a column of W, from what the data tell: A (P, P), b (P,
        own).

        The exponent is b . w - w^T (A + side_information) w / 2.  Raises LinAlgError where that has no posterior.
        """

    # ---- the same for all

    @final
    def together(self) -> np.ndarray:
        """(P, P): 1 where two rows live on one part of the embedding, else 0."""
        return np.equal.outer(self.row_slices, self.row_slices).astype(float)

    @final
    def nothing_known(self) -> np.ndarray:
        """V (P, P) of the fields where nothing is known but the mean of the weights."""
        return self.law(np.zeros((self.rows, self.rows))).V

    @final
    def least_told(self) -> np.ndarray:
        """(P, P): what the data must tell, V^{1/2} alpha E V^{1/2}, before anything is learned of what nothing is known
        of; zero where little is learned of little."""
        eye = np.eye(self.rows)
        return self.response(eye, np.zeros_like(eye), 0.0).rest

    @final
    def centred(self) -> bool:
        """Whether nothing is known of fields where nothing is known of the weights: omega = 0 there."""
        law = self.law(np.zeros((self.rows, self.rows)))
        return not (law.gain.any() or law.noise.any())
