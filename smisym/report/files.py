"""Documents on disk: the writer follows the name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from smisym.base.derivation import Derivation
from smisym.base.errors import InputError, Words
from smisym.base.files import write_text
from smisym.report.html import derivation_page
from smisym.report.latex import derivation_document
from smisym.report.markdown import derivation_text

_WRITERS: dict[str, Callable[[Derivation], str]] = {
    ".html": derivation_page,
    ".md": derivation_text,
    ".tex": derivation_document,
}


def write_derivation(derivation: Derivation, path: str | os.PathLike[str]) -> Path:
    """Write the derivation as HTML, Markdown or LaTeX, by the suffix of ``path``; returns the path.

    Raises InputError for another suffix (before anything is rendered) and where the file cannot be written.
    """
    given: object = derivation
    if not isinstance(given, Derivation):
        fix = "write smisym.write_derivation(smisym.derive(model), 'network.html')"
        raise InputError("derivation", given, "a Derivation", fix)
    named: object = path
    if not isinstance(named, str | os.PathLike):
        raise InputError("path", named, "a path", "give the name of a file")
    path = Path(path)
    write_text(path, _writer(path)(derivation))
    return path


def check_document(path: str | os.PathLike[str]) -> Path:
    """The path, before what is to be written is made; InputError for another suffix and for a folder that is absent."""
    path = Path(path)
    _writer(path)
    if not os.path.isdir(path.parent):
        given, fix = Words("no such folder"), "make the folder, or choose another"
        raise InputError(f"file to write {path}", given, "a name in a folder that exists and can be written", fix)
    return path


def _writer(path: Path) -> Callable[[Derivation], str]:
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise InputError("name of the document", str(path), f"a name that ends in {', '.join(_WRITERS)}", "rename it")
    return writer
