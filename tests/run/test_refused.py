"""What runs over many values refuse before anything is computed: a message with a remedy, and no file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import smisym
from smisym import SMI, InputError, Result, Solution
from smisym.link.program import Assign, Program

LINE = SMI("z1", 1, noise=0.5)


def bare() -> smisym.Model:
    """y = 2 z, by hand: there is no declaration, by which what is kept could be told apart."""
    z, y = sp.MatrixSymbol("z", 1, 1), sp.MatrixSymbol("y", 1, 1)
    return smisym.compile(Program((z,), (Assign(y, 2 * z),), y))


def last(values: int) -> smisym.Gamp:
    one = np.eye(1)
    return smisym.Gamp(np.ones((1, values)), one, one, None, 0, "", ("z1",))


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a network without a declaration": (
        lambda folder: smisym.analyze(bare(), folder / "out"), "network: .*a Model of one.*declare it as an SMI"
    ),
    "damping of one": (
        lambda folder: smisym.analyze(LINE, folder / "out", damping=1.0),
        "damping: given 1.0; allowed: 0 <= damping < 1",
    ),
    "a grid of two million values": (
        lambda folder: smisym.phase_diagram(LINE, {"noise": np.linspace(0.1, 1, 2000), "tokens": range(1, 1001)}),
        "vary: given '2000000 values'; allowed: at most 100000.*ask for fewer",
    ),
    "a sweep for a number": (
        lambda folder: smisym.sweep(lambda noise: LINE, [0.5], 3), r"what: given 3; allowed: .*write \[3\]"  # type: ignore[arg-type]
    ),
    "a sweep that keeps what has no name": (
        lambda folder: smisym.sweep(lambda _: bare(), [0.5], [1.0], store=folder / "kept", samples=16),
        "store: .*declarations, by which what is kept is told apart.*leave store out",
    ),
    "dynamics that keep what has no name": (
        lambda folder: smisym.dynamics(bare(), alpha=1.0, dim=10, optimizers=["none"], store=folder / "kept"),
        "store: .*a declaration, by which what is kept is told apart.*leave store out",
    ),
    "a picture of a run without steps": (
        lambda folder: Solution(last(5), Result.SUCCESS).picture(), "solution: given 'no history'.*run smisym.gamp"
    ),
    "code of a path": (
        lambda folder: smisym.export_code("n.toml", "python"),  # type: ignore[arg-type]
        "model: given 'n.toml'; allowed: a Model, or a declaration.*smisym.export_code",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_run_is_refused_before_anything_is_computed(name: str, tmp_path: Path) -> None:
    make, words = BAD[name]
    with pytest.raises(InputError, match=f"(?s){words}"):
        make(tmp_path)
    assert not list(tmp_path.iterdir())


def test_code_of_a_declaration_is_that_of_its_model() -> None:
    assert smisym.export_code(LINE, "latex") == smisym.export_code(smisym.compile(LINE), "latex")
    with pytest.raises(InputError, match="language"):
        smisym.export_code(LINE, "fortran")
    assert "Compiled from a program." in smisym.export_code(bare(), "python")
