"""Which backend carries loops over points out: numpy, always there, or numba where it is installed."""

from __future__ import annotations

import functools
import importlib.util
import os
from dataclasses import dataclass
from importlib import metadata

from smisym.base.errors import InputError

NUMPY, NUMBA = "numpy", "numba"


@dataclass(frozen=True)
class Backend:
    """name: NUMPY or NUMBA.  why: one clause."""

    name: str
    why: str

    @property
    def version(self) -> str:
        """Name and version, as results record it: other ones may give other bits."""
        return f"{self.name} {metadata.version(self.name)}"


def backend() -> Backend:
    """The backend in use: ``SMISYM_BACKEND`` (numpy or numba) where it is set, else numba where it is installed.

    Raises InputError for another name, and for numba where it is not installed.
    """
    return _backend(os.environ.get("SMISYM_BACKEND", ""))


@functools.cache
def _backend(asked: str) -> Backend:
    installed = importlib.util.find_spec("numba") is not None
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
    raise InputError("environment variable SMISYM_BACKEND", asked, "numpy or numba", "choose one, or unset it")
