"""Which backend carries loops over points out: numpy, always there, numba where installed, or JAX if asked for."""

from __future__ import annotations

import functools
import importlib.util
import os
from dataclasses import dataclass
from importlib import metadata

from smisym.base.accelerators import device
from smisym.base.errors import InputError

NUMPY, NUMBA, JAX = "numpy", "numba", "jax"


@dataclass(frozen=True)
class Backend:
    """name: NUMPY, NUMBA or JAX.  why: one clause.  loops: NUMPY or NUMBA, which does what JAX has no program for."""

    name: str
    why: str
    loops: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "loops", self.loops or self.name)

    @property
    def version(self) -> str:
        """Names and versions, as results record them: other ones may give other bits."""
        return " + ".join(f"{name} {metadata.version(name)}" for name in dict.fromkeys((self.name, self.loops)))


def backend() -> Backend:
    """The backend in use: ``SMISYM_BACKEND`` (numpy, numba or jax) where it is set, else numba where it is installed.

    ``jax+numpy`` and ``jax+numba`` choose what does the rest as well.

    Raises InputError for another name, and for numba or jax where it is not installed.
    """
    return _backend(os.environ.get("SMISYM_BACKEND", ""))


@functools.cache
def _backend(asked: str) -> Backend:
    installed = importlib.util.find_spec("numba") is not None
    if asked == JAX or asked.startswith(f"{JAX}+"):
        return Backend(JAX, f"SMISYM_BACKEND asks for it; JAX finds {device()}", _backend(asked[len(JAX) + 1 :]).loops)
    match asked:
        case "":
            if installed:
                return Backend(NUMBA, "numba is installed")
            return Backend(NUMPY, "numba is not installed; pip install 'smisym[fast]' brings it")
        case "numpy":
            return Backend(NUMPY, "SMISYM_BACKEND asks for it")
        case "numba" if installed:
            return Backend(NUMBA, "SMISYM_BACKEND asks for it")
        case "numba":
            raise InputError(
                "environment variable SMISYM_BACKEND", asked, "a backend that is installed",
                "pip install 'smisym[fast]', or unset it",
            )  # fmt: skip
    raise InputError("environment variable SMISYM_BACKEND", asked, "numpy, numba or jax", "choose one, or unset it")
