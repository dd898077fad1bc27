"""Atomic writes: a reader sees the old file or the new one, never a torn one, also after a kill -9 or a power cut."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from smisym.errors import InputError


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Put ``content`` at ``path`` in one step: a temporary file beside it, synced, then renamed.

    Raises :class:`~smisym.errors.InputError` where the folder does not exist or cannot be written.
    """
    target = Path(path)
    # In the same folder, because a rename is atomic only within one file system.
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # O_EXCL with mode 0o666: the file gets the permissions that the user's umask asks for.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
            _sync_folder(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(
            f"file to write {path}", reason(error), "a name in a folder that exists and can be written",
            "make the folder, or choose another place",
        ) from None  # fmt: skip


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """:func:`write_bytes` of the text in UTF-8."""
    write_bytes(path, text.encode())


def make_folder(path: str | os.PathLike[str], purpose: str) -> Path:
    """The folder, made where absent; ``purpose`` names it in errors."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{purpose} {path}", reason(error), "a folder that exists or can be made", "choose another place"
        ) from None
    return folder


def reason(error: Exception) -> str:
    """Why the system refused a file, in words."""
    return getattr(error, "strerror", None) or str(error)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable.  Not every system can sync a folder; the rename is atomic all the same."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
