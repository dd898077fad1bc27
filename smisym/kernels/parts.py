"""Functions that compiled loops are made of, and that nothing else calls.

numba optimises every function and makes machine code of it, and does so once more, as a part of whatever calls it: a
function at the end of six calls is optimised seven times.  What is compiled by :class:`Parts` is handed on as it was
written: it is optimised, and becomes machine code, within the function that is called from outside, and there alone.

Only importable where numba is.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Unloaded:
    """What makes machine code, for one that has none: there is no place yet to which an environment could be set."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, *_: Any) -> None:
        pass


class _AsWritten(JITCodeLibrary):
    """Code to be linked into that of others."""

    @property
    def codegen(self) -> Any:
        return _Unloaded(super().codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class Parts(Compiler):
    """numba's compiler, for functions that only compiled functions call: ``njit(pipeline_class=Parts, ...)``, without
    wrappers for Python and C."""

    def define_pipelines(self) -> Any:
        if self.state.library is None:
            self.state.library = _AsWritten(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()
