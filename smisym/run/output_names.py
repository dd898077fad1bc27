"""Names of the files that a command writes, checked before it runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

# How names of pictures may end.
_PICTURES = (".svg", ".png", ".pdf")


def check_npz(output: str) -> None:
    """Before a long run: that its estimate can be written at the end."""
    _check_output(output, "file for the estimate", (".npz",), "estimate.npz")


def check_picture(output: str | None, option: str = "-o") -> Path | None:
    """Before a long run: that its picture can be written at the end; None for none."""
    if output is None:
        return None
    return _check_output(output, "file for the picture", _PICTURES, "picture.svg", option)


def check_table(output: str | None) -> Path | None:
    """The same of a table."""
    return None if output is None else _check_output(output, "file for the table", (".csv",), "table.csv", "--csv")


def check_page(output: str | None) -> Path | None:
    """The same of a page, or of its numbers alone."""
    return None if output is None else _check_output(output, "file for the page", (".md", ".json"), "atlas.md")


def _check_output(output: str, what: str, endings: Sequence[str], example: str, option: str = "-o") -> Path:
    """The path; InputError unless it ends so and can be written."""
    from smisym.base.errors import InputError, Words
    from smisym.base.files import check_path, reason, remedy

    path = check_path(output, what)
    name = "output" if option == "-o" else option.lstrip("-")
    if path.suffix not in endings or os.path.isdir(path):
        raise InputError(
            name, output, f"the name of a file that ends in {', '.join(endings)}", f"write {option} {example}"
        )
    try:
        os.stat(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        allowed = "a name in a folder that exists and can be written"
        raise InputError(f"{name} {output}", Words(reason(error)), allowed, remedy(error)) from None
    try:  # as root everything may be written, but not everything can be
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        allowed = "a name in a folder that exists and can be written"
        fix = "make the folder" if isinstance(error, FileNotFoundError) and not path.parent.exists() else remedy(error)
        raise InputError(name, output, allowed, fix) from None
