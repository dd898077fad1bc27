"""What this installation runs on: versions, the backend and why, where compiled loops are kept; and their text."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from smisym.base.backends import NUMBA, backend
from smisym.base.counting import counted
from smisym.base.errors import InputError, Words
from smisym.base.files import check_path, write_text
from smisym.declare.io import package_version, to_json
from smisym.export import LANGUAGES, export_code
from smisym.model.compiled import Model
from smisym.report import check_document
from smisym.run import unasked


def installation() -> dict[str, Any]:
    """As plain JSON types; raises InputError for a backend that is asked for and is not there."""
    chosen = backend()
    kept = None
    if chosen.loops == NUMBA:
        from smisym.kernels.numba_code import folder

        kept = str(folder())
    return {
        "package": "smisym",
        "package_version": package_version(),
        "python": platform.python_version(),
        "backend": chosen.version,
        "why": chosen.why,
        "compiled_loops": kept,
        "interrupted_commands": {"folder": str(unasked.place()), "count": unasked.count()},
        "cores": os.cpu_count(),
    }


def print_info(as_json: bool) -> None:
    """On stdout, as a table or as one JSON document."""
    found = installation()
    if as_json:
        typer.echo(to_json(found))
        return
    typer.echo(f"smisym {found['package_version']}, Python {found['python']}, {counted(found['cores'], 'core')}")
    typer.echo(f"backend: {found['backend']}: {found['why']}")
    if found["compiled_loops"] is not None:
        typer.echo(f"compiled loops are kept in {found['compiled_loops']} (SMISYM_CACHE chooses another folder)")
    interrupted = found["interrupted_commands"]
    typer.echo(
        f"interrupted commands: {interrupted['count']} that resume when given again, for {unasked.DAYS} days, in "
        f"{interrupted['folder']}"
    )


def document_of(output: str | None) -> Path:
    """The document that ``smisym derive -o`` names; InputError where it names none, or one that cannot be written."""
    if not output:
        fix = "add it, as in: smisym derive FILE -o derivation.html"
        raise InputError("option -o, the document to write", Words("none"), "a name in .html, .md or .tex", fix)
    return check_document(check_path(output, "document"))


def print_code(compiled: Callable[[], Model], code: str, output: str | None, seed: int) -> None:
    """The code of a model, to stdout or to a file.

    InputError, before anything is compiled, for a language that there is no code in, and for a file that does not end
    as its files do.
    """
    if code not in LANGUAGES:
        raise InputError("--code", code, ", ".join(LANGUAGES), "write --code python")
    path, ending = None if output is None else check_path(output, "file for the code"), LANGUAGES[code]
    if path is not None and path.suffix != ending:
        raise InputError(
            "output", output, f"the name of a file that ends in {ending}, with --code {code}",
            f"write for example -o denoiser{ending}; leave --code out for a document",
        )  # fmt: skip
    text = export_code(compiled(), code, seed=seed)
    if path is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_text(path, text)
        typer.echo(f"written: {path}")
