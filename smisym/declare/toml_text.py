"""TOML text into tables, with errors that say what to write instead.

What is read may come from somebody else.  tomllib takes time that grows with the square of the number of parts of a
dotted key; no declaration has one, and a long one is refused before it is read.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from typing import Any

from smisym.base.errors import InputError, Words

EXAMPLE = 'begin with "tokens = 2", then write one [[layers]] line for every layer'
MAX_PARTS = 16  # of a dotted key

# Names with dots between them, outside of texts or inside.  Possessive, so that nothing is tried twice.
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DOTTED = re.compile(rf"""(?<![\w"'-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_PARTS}}}""")


def read_toml(content: bytes, where: str) -> dict[str, Any]:
    """The table of a TOML text; ``where`` names it in errors.  Raises :class:`~smisym.base.errors.InputError`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(where, str(error), "TOML text in UTF-8", "save the file as UTF-8") from None
    dotted = _DOTTED.search(text)
    if dotted is not None:
        line = text.count("\n", 0, dotted.start()) + 1
        given = Words(f"line {line}: {dotted[0][:80]!r}, a name of more than {MAX_PARTS} parts")
        raise InputError(where, given, "names without dots", "write name = value, and [[layers]] for every layer")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(where, Words("brackets nested too deep"), "TOML text", EXAMPLE) from None
    except ValueError as error:  # TOMLDecodeError, and integers too long to read
        given, fix = _syntax(text, str(error))
        raise InputError(where, given, "TOML text", fix) from None


_SYNTAX = (
    (r"=\s*(True|False)\b", "TOML writes true and false, in small letters"),
    (r"=\s*(None|null|nil)\b", "TOML has no None: leave the key out for its default"),
    (r"=\s*\(", "TOML writes lists in square brackets"),
    (r"=\s*-?\.\d|=\s*-?\d+\.(\D|$)", "TOML wants a digit on both sides of the decimal point: 0.5, 1.0"),
    (r"^\s*[\w.-]+\s*:", "TOML writes name = value, with an equals sign"),
    (r"^\s*[\w.-]+\s*=\s*(#.*)?$", "give the value after the equals sign, or leave the line out"),
    (r"^\s*\[\[?[\w.-]+\]?\s*$", "write [[layers]], with two brackets on each side"),
    (r"=\s*[A-Za-z_]+\s*(#.*)?$", 'put text in quotes: activation = "softmax"'),
)


def _syntax(text: str, message: str) -> tuple[Words, str]:
    """Where TOML text is wrong and what stands there; then what to do about it."""
    found = re.search(r"^(.*?) \(at line (\d+), column (\d+)\)$", message, flags=re.DOTALL)
    lines = text.split("\n")
    if "digits" in message and found is None:  # Python's limit, which names no place
        return Words("an integer of thousands of digits"), "write large numbers as 1e300"
    if found is None:  # at the end of the document, or of no place
        given = Words(f"{message}; it ends with {lines[-1][:80]!r}")
        return given, "complete what was begun: a bracket or a quote is open"
    what, line, column = found[1], int(found[2]), int(found[3])
    here = lines[line - 1] if line <= len(lines) else ""
    given = Words(f"line {line}, column {column}, {here.strip()[:80]!r}: {what[:1].lower()}{what[1:]}")
    letter = here[column - 1 : column]
    if not letter.isascii():  # it may look like one that is
        return given, f"write a plain letter: {letter!r} is {unicodedata.name(letter, ascii(letter))}"
    if what.startswith("Cannot overwrite"):
        return given, "remove one of the two lines that give this key"
    if what.startswith("Cannot declare") or what.startswith("Cannot mutate"):
        return given, "write [[layers]], with two brackets on each side, for every layer"
    return given, next((fix for pattern, fix in _SYNTAX if re.search(pattern, here)), "write name = value on that line")
