"""Atomic writes: a reader sees the old file or the new one, never a torn one, also after a kill -9 or a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from smisym.base.errors import InputError, Words


def cache_folder() -> Path:
    """Where this package keeps what can be made again: ``SMISYM_CACHE``, or its place among the user's caches."""
    chosen = os.environ.get("SMISYM_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or str(Path.home() / ".cache")
    return Path(base) / "smisym"


def write_bytes(path: str | os.PathLike[str], content: bytes, synced: bool = True) -> None:
    """Put ``content`` at ``path`` in one step: a temporary file beside it, synced, then renamed.

    synced: False for what need not outlast a power cut.
    Raises :class:`~smisym.base.errors.InputError` where the folder does not exist or cannot be written.
    """
    target = check_path(path, "file to write")
    # In the same folder, because a rename is atomic only within one file system.
    temporary = target.parent / f".{target.name[:100]}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        # O_EXCL with mode 0o666: the file gets the permissions that the user's umask asks for.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                if synced:
                    os.fsync(stream.fileno())
            os.replace(temporary, target)
            if synced:
                _sync_folder(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(
            f"file to write {path}", Words(reason(error)), "a name in a folder that exists and can be written",
            remedy(error),
        ) from None  # fmt: skip


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """:func:`write_bytes` of the text in UTF-8."""
    write_bytes(path, text.encode())


def make_folder(path: str | os.PathLike[str], purpose: str) -> Path:
    """The folder, made where absent; ``purpose`` names it in errors."""
    folder = check_path(path, purpose)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{purpose} {path}", Words(reason(error)), "a folder that exists or can be made", remedy(error)
        ) from None
    return folder


def check_path(path: object, what: str) -> Path:
    """``path`` as a Path; InputError for what is no name of a file, an empty one included."""
    # A number would be taken for an open file of this process.
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise InputError(what, path, "the name of a file or folder, as text or a Path", "give its name")
    return Path(text)


def reason(error: Exception) -> str:
    """Why the system refused a file, in words."""
    return getattr(error, "strerror", None) or str(error)


_PERMISSION = "ask for permission there, or choose another place"
_SPACE = "free some space, or choose a place on another disk"
_REMEDIES = {
    errno.ENOENT: "make the folder, or choose another place",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "choose a place that can be written: this one is read-only",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EISDIR: "add the name of a file: this is a folder",
    errno.ENOTDIR: "choose another place: part of this name is a file, not a folder",
    errno.EEXIST: "choose another name: a file has this one",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def remedy(error: Exception) -> str:
    """What helps where the system refused to write, by its reason."""
    return _REMEDIES.get(getattr(error, "errno", None) or 0, "choose another place")


def _sync_folder(folder: Path) -> None:
    """Make a rename durable.  Not every system can sync a folder; the rename is atomic all the same."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
