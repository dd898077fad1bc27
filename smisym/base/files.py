"""Reads that end, and atomic writes: a reader sees the old file or the new one, never a torn one.

Also after a kill -9 or a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import select
import stat
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


# Seconds that a pipe may be silent: a shell's <(command) begins at once, and a pipe that nobody writes to never does.
SILENT = 3.0


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A file to read from, as ``open``; what cannot be read from twice, a pipe or a device, is an OSError."""
    handle = open(path, "rb", opener=_without_waiting)
    if stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        return handle
    handle.close()
    raise OSError(errno.ESPIPE, "a pipe or a device")


def read_bytes(path: str | os.PathLike[str], where: str, limit: int) -> bytes:
    """All of a file, or of what comes out of a pipe, at most ``limit`` bytes; ``where`` names it in errors.

    Raises :class:`~smisym.base.errors.InputError` where it cannot be read, is longer, or is a pipe that stays silent.
    """
    content = bytearray()
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as handle:
            number = handle.fileno()
            waits = not stat.S_ISREG(os.fstat(number).st_mode) and not handle.isatty()
            while len(content) <= limit:
                if waits and not select.select([number], [], [], SILENT)[0]:
                    raise OSError(errno.ETIMEDOUT, f"a pipe in which nothing came for {SILENT:g} seconds")
                piece = handle.read(limit + 1 - len(content))
                if piece == b"":
                    return bytes(content)
                content += piece or b""
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise unreadable(where, error) from None
    given = Words(f"more than {limit} bytes")
    raise InputError(where, given, f"a file of at most {limit} bytes", "check the name, or delete it")


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe that nobody writes to, where ``open`` would wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def unreadable(where: str, error: Exception) -> InputError:
    """What is told of a file that the system does not let be read."""
    fixes = {
        errno.ENOENT: "check the name",
        errno.EACCES: "ask for permission to read it",
        errno.EISDIR: "give the name of a file: this is a folder",
        errno.ETIMEDOUT: "write it to a file first, and give the name of that",
        errno.ESPIPE: "write it to a file first, and give the name of that",
    }
    fix = fixes.get(getattr(error, "errno", None) or 0, "check the name and the permissions")
    return InputError(where, Words(reason(error)), "a file that exists and can be read", fix)


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


def source_digest() -> str:
    """A digest of this package as it is on disk: while it is worked on its version stays the same."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        about = path.stat()
        digest.update(f"{path.relative_to(root)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
