"""Generated modules on disk, and the choice of a backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smisym.base.backends import backend
from smisym.base.errors import InputError
from smisym.kernels import numba_code
from smisym.kernels.tracing import trace

pytest.importorskip("numba")
SCRIPT = """
import numpy as np
from smisym.kernels.numba_code import compiled_program
from smisym.kernels.tracing import trace
run = compiled_program(trace(lambda a, b: [np.exp(a) * b, a - b], ["a", "b"]), 1)
x, out = np.linspace(-1, 1, 5)[None], np.empty((2, 5))
run(x, np.array([2.0]), out)
np.testing.assert_allclose(out, [2 * np.exp(x[0]), x[0] - 2], rtol=1e-15)
print("fine")
"""


def started(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"SMISYM_BACKEND": "numba", "SMISYM_CACHE": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> None:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert out == "fine\n"


def test_two_processes_at_once_and_one_later(tmp_path: Path) -> None:
    for process in [started(tmp_path), started(tmp_path)]:
        ended(process)
    (module,) = tmp_path.glob("smisym_*.py")
    assert list(tmp_path.rglob("*.nbc")), "the machine code is kept"
    kept = module.read_text()
    ended(started(tmp_path))
    # Torn by a crash of the machine: written anew, and what numba keeps beside it is not believed.
    module.write_text(kept[:100])
    for code in tmp_path.rglob("*.nb?"):
        code.write_bytes(code.read_bytes()[:50])
    ended(started(tmp_path))
    assert module.read_text() == kept


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    ended(started(blocked / "loops"))


def test_the_folder_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path))
    assert numba_code.folder() == tmp_path
    monkeypatch.delenv("SMISYM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert numba_code.folder() == tmp_path / "smisym"


def test_the_backend_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMISYM_BACKEND", "numpy")
    assert backend().name == "numpy" and backend().version == f"numpy {np.__version__}"
    assert numba_code.compiled_program(trace(lambda a: [a], ["a"]), 1) is None
    monkeypatch.delenv("SMISYM_BACKEND")
    assert backend().name == "numba" and "installed" in backend().why
    monkeypatch.setenv("SMISYM_BACKEND", "fortran")
    with pytest.raises(InputError, match="'fortran'; allowed: numpy, numba or jax"):
        backend()


def test_constants_and_unused_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outputs that are numbers, and programs without a line."""
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path))
    run = numba_code.compiled_program(trace(lambda a, b: [2.0, a], ["a", "b"]), 2)
    assert run is not None
    out = np.empty((2, 3))
    run(np.arange(6.0).reshape(2, 3), np.empty(0), out)
    np.testing.assert_array_equal(out, [[2.0, 2.0, 2.0], [0.0, 1.0, 2.0]])
