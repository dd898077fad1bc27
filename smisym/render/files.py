"""Documents on disk: the writer follows the name, and a file is either old or new, never half."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from smisym.derivation import Derivation
from smisym.errors import InputError
from smisym.render.html import derivation_page
from smisym.render.latex import derivation_document
from smisym.render.markdown import derivation_text

_WRITERS: dict[str, Callable[[Derivation], str]] = {
    ".html": derivation_page,
    ".md": derivation_text,
    ".tex": derivation_document,
}


def write_derivation(derivation: Derivation, path: str | os.PathLike[str]) -> Path:
    """Write the derivation as HTML, Markdown or LaTeX, by the suffix of ``path``; returns the path.

    Raises InputError for another suffix (before anything is rendered) and where the file cannot be written.
    """
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise InputError("name of the document", str(path), f"a name that ends in {', '.join(_WRITERS)}", "rename it")
    write_atomically(path, writer(derivation).encode())
    return path


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Put ``content`` at ``path`` in one step: a reader, or a crash, sees the old file or the new one.

    Raises InputError where the folder does not exist or cannot be written.
    """
    path = Path(path)
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(
            "file to write",
            f"{path} ({getattr(error, 'strerror', None) or error})",
            "a path in an existing folder that you may write to",
            "make the folder, or choose another path",
        ) from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()
