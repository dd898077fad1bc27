"""The square loss of a network on data, and its gradient in the fields, by JAX.

    loss(W) = (1 / 2N) sum_mu ||f(Z_mu) - y_mu||^2,   Z_mu = W X_mu^T / sqrt(D)

Any output has it: entries of attention matrices, products of mixings, numbers of a declared expression.  It is what the
paper descends (arXiv 2502.00901, section 3.3), and minus the log-likelihood where the noise is Gaussian.  A
cross-entropy would need outputs that are probabilities, and those that are discrete come from links that jump, which
have no gradient whatever the loss.

JAX, not torch: it prints the link already (:mod:`smisym.kernels.jax_code`), its derivative is a transformation of that
same function, and it is an extra that the package has (``smisym[gpu]``).  What is linear, from weights to fields and
back, is the prior's: rows that see slices of the tokens, matrices of extensive rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.base.accelerators import jax, wide
from smisym.base.errors import InputError, Words
from smisym.kernels.expanding import NotWrittenOut, expanded
from smisym.kernels.jax_code import NotOnDevice, jax_function
from smisym.link.linking import LinkFunction
from smisym.link.program import jumps

_ALLOWED = "a link that is continuous, and made of what JAX can differentiate"

_WITHOUT = "or ask for no optimizer (none): state evolution and GAMP need no gradient"


@dataclass(frozen=True)
class SquareLoss:
    """Of one link: called with fields Z (N, P, T) and outputs y (N, ...) it gives (loss, its gradient (N, P, T)).

    loss: the mean over samples.  The gradient is that of each sample's own loss, not divided by N.
    """

    _compiled: Callable[..., Any]

    @classmethod
    def of(cls, link: LinkFunction) -> SquareLoss:
        """Raises InputError for a link that has no gradient, and without JAX, which it names."""
        if jumps(link.program):
            raise InputError(
                "link", Words("an output that jumps (hardmax, sign)"), _ALLOWED,
                f"take a softmax of large beta, or tanh(8*z) in place of sign(z); {_WITHOUT}",
            )  # fmt: skip
        try:
            outputs = jax_function(expanded(link.output_program))
        except (NotOnDevice, NotWrittenOut) as error:
            fix = f"write the link in other functions; {_WITHOUT}"
            raise InputError("link", Words(str(error)), _ALLOWED, fix) from None

        def loss(Z: Any, y: Any) -> Any:
            found = outputs(*Z.reshape(len(Z), -1).T)
            # An entry that is constant has no samples of its own.
            return 0.5 * sum(((value - seen) ** 2).sum() for value, seen in zip(found, y.T, strict=True))

        return cls(jax().jit(jax().value_and_grad(loss)))

    def __call__(self, Z: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        with wide():
            value, gradient = self._compiled(np.ascontiguousarray(Z), y.reshape(len(y), -1))
            return float(value) / len(Z), np.asarray(gradient)
