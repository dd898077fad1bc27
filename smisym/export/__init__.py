"""Code that leaves the house: the denoiser of a model as one module that needs numpy alone, its formulas, its loops."""

from __future__ import annotations

from collections.abc import Callable

from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture
from smisym.declare.smi import SMI
from smisym.export.assembling import denoiser_module
from smisym.model.code import kernel_source
from smisym.model.compiled import Model, compile
from smisym.report.latex import derivation_formulas
from smisym.trail.whole import derive

__all__ = ["LANGUAGES", "export_code"]

_WRITERS: dict[str, Callable[[Model, int], str]] = {
    "python": denoiser_module,
    "latex": lambda model, seed: derivation_formulas(derive(model, checks=False)),
    "numba": lambda model, seed: kernel_source(model),
}
# What can be written, and how its files end.
LANGUAGES = {"python": ".py", "latex": ".tex", "numba": ".py"}


def export_code(model: Model | Architecture | SMI, language: str = "python", *, seed: int = 0) -> str:
    """The denoiser of a model as code to take away.

    python: one module that needs numpy alone, with functions ``moments``, ``g_out`` and ``dg_out`` of (y, omega, V) as
    those of the channel, and a self-test (``python FILE``), whose references ``seed`` draws.  latex: the formulas of
    the derivation, to be read by ``\\input``.  numba: the loops that are compiled for this model, to be read.

    Raises InputError for another language, and where there is no such code: the message says why and what to do.
    """
    if isinstance(model, Architecture | SMI):
        model = compile(model)
    if not isinstance(model, Model):
        raise InputError(
            "model", model, "a Model, or a declaration", "write smisym.export_code(smisym.compile(architecture))"
        )
    if language not in _WRITERS:
        raise InputError("language", language, ", ".join(_WRITERS), "choose one")
    return _WRITERS[language](model, seed)
