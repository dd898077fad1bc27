"""Hostile architecture files, drawn at random, and a judge of what reading one does.

Seeds are the files that are shipped and those of the documents; each is changed by bytes, by keys, by values and by
expressions that a grammar draws.  ``benchmarks/fuzz.py`` reads thousands, ``declare/test_hostile.py`` some.
"""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import smisym
from smisym.base.errors import InputError

ROOT = Path(__file__).parents[1]
SECONDS, BYTES = 5.0, 1 << 30


def seeds() -> list[str]:
    """Texts of all files that are shipped, and of all that documents show."""
    shipped = [path.read_text() for path in sorted((ROOT / "smisym/declare/shipped").glob("*.toml"))]
    documents = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "derivations").glob("*.md")),
    ]
    shown = [text for path in documents for text in re.findall(r"```toml\n(.*?)```", path.read_text(), flags=re.DOTALL)]
    return shipped + shown


SEEDS = seeds()

# A file of this name appears where any of these is executed.
CANARY = "executed"
_TOUCH = f"open('{CANARY}', 'w')"
PROGRAMS = (
    _TOUCH, f"__import__('os').system('touch {CANARY}')", f"__import__('pathlib').Path('{CANARY}').touch()",
    f"(lambda: {_TOUCH})()", f"exec(\"{_TOUCH}\")", f"eval(\"{_TOUCH}\")", f"[{_TOUCH} for i in (1,)][0]",
    "().__class__.__base__.__subclasses__()", "s.__class__", "z1.__init__.__globals__", "exp.__call__(s)",
    "getattr(s, 'free_symbols')", "(s := 3)", "s if s else 1", "f'{s}'", "yield s", "await s", "lambda s: s", "...",
    "import os", "s; s", "s\nimport os", "print(s)", "sp.Symbol('x')", "exp(*[s])", "exp(**{'x': s})", "s[0]", "s[-1]",
    "s[1:2]", "z1[True]", "z1[9**9]", "s @ s", "s // 2", "s % 2", "s & s", "s | s", "~s", "not s", "s and s", "s == s",
    "s < s < s", "{s}", "{s: s}", "[s]", "(s,)", "s,", "1j*s", "'s'", "b's'", "None", "True", "__debug__", "None*s",
)  # fmt: skip
HUGE = (
    "9**9**9", "9**9**9**s", "(10**60)**60", "2**(2**(2**(2**6)))", "s**(10**9)", "(1+s)**64**2", "((s+1)**64)**64",
    "exp(exp(exp(exp(s))))", "exp(64*log(s**64))", "exp(9**9*log(s))", "1e999999999", "1e-999999999", "0.1**-64**8",
    "1" + "0" * 4000, "0x" + "f" * 3000, "1_000_000", "s" + "+s" * 1500, "s*" * 1200 + "s", "(" * 300 + "s" + ")" * 300,
    "exp(" * 45 + "s" + ")" * 45, "-" * 900 + "s", "s**" * 40 + "s", "1/" * 60 + "s", "tanh(" * 20 + "s+1" + ")" * 20,
    "sinh((1+s+s**2+s**3)**30)", "cosh((s+1/s)**20)", "max(" + ",".join(["s"] * 900) + ")",
    "erf(" * 45 + "s" + ")" * 45,
    "sin(" + "+".join(f"sin({k}*s)" for k in range(200)) + ")", "sqrt(" * 45 + "s**2+1" + ")" * 45,
    "abs(" * 45 + "s" + ")" * 45, "(s+1)**64*(s+2)**64*(s+3)**64", "log(" * 40 + "s" + ")" * 40,
    "exp(" + "+".join(f"exp({k}+s)" for k in range(60)) + ")", "tan(" * 40 + "s" + ")" * 40,
    "sqrt(2)**sqrt(3)**sqrt(5)",
    "asinh(" * 20 + "(s+1)**64" + ")" * 20, "(((1+sqrt(2))**50+sqrt(3))**50)*s", "s*pi**pi**pi", "exp(1)**exp(1)**5*s",
)  # fmt: skip
ODD = (
    "\ufeff", "\u202e", "\u200b", "\x00", "\x1b[2J", "\u2028", "\x85", "\x0b", "\r", "т", "о", "ｚ", "１", "²", "ſ",
    "ß", "İ",
    "\U0001f600", "e\u0301", "\ud800", "\udfff", "\u0660", "−", "×", "·", "\x7f", "\\ud800", "\\u0000", "\\U0010ffff",
    "'''", '"""',
)  # fmt: skip
KEYS = (
    "tokens", "layers", "rank", "skip", "beta", "kind", "fields", "expressions", "noise", "scale", "mask", "position",
    "readout", "activation", "heads", "limit", "output", "__class__", "__init__", "self", "tоkens", '""', "'a b'",
    "a.b",
    "layers.rank", "layers.layers", "digest", "canonical", "tokens.tokens", '"\\u0000"', "x" * 5000, "a." * 15 + "a",
    "a." * 3000 + "a",
)  # fmt: skip
VALUES = (
    "nan", "-nan", "inf", "-inf", "0", "-0.0", "-1", "1", "2", "3", "1e-400", "1e400", "-1e308", "1e100", "5e-324",
    "0.5", "true",
    "false", '""', "''", "[]", "{}", "[[]]", "[{}]", "[[1, 2], [3, 4]]", "[[true, false], [true, true]]",
    "[[nan, 1], [1, 1]]",
    "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "2024-02-30", "9" * 4000, "9" * 5000, "0x" + "f" * 40,
    "0x" + "f" * 9000,
    "0o777", "0b" + "1" * 9000, "99999999999999999999", "1_000", "[" * 200 + "]" * 200, "[" * 3000 + "]" * 3000,
    "{a=" * 150 + "1" + "}" * 150, '"causal"', '"softmax"', '"linear"', '"smi"', '"ode"', '"first_order"', '"sum"',
    '"split"',
    '"' + "x" * 9000 + '"', "[" + "1," * 3000 + "]", "[" + "[1],".join([""] * 2000) + "]", "[" + '"z1",' * 2000 + "]",
    '["z1", "z1"]', '["def"]', '["z1", 2]', '[["z1"]]', '"sequence"', '"1/sqrt(rank)"', '"rank"', '"rank**64"', "48",
    "1024", "1025", "4096", "100000",
)  # fmt: skip

_FUNCTIONS = (
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "atan",
    "erf",
    "abs",
    "sign",
    "relu",
)
_NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "64",
    "65",
    "0.1",
    "1e-300",
    "1e300",
    "1e308",
    "5e-324",
    "1/3",
    "pi",
    "0.0",
    "1e5",
    "123456789",
)


def expression(rng: random.Random, depth: int) -> str:
    """Arithmetic of every operation and function, of a depth that is drawn."""
    kind = rng.randrange(12) if depth > 0 else rng.randrange(2)

    def part() -> str:
        return expression(rng, depth - rng.randint(1, 2))

    if kind == 0:
        return rng.choice(("s", "z1", "z2", "z3", "z1[1]", "z1[2]", "rank"))
    if kind == 1:
        return rng.choice(_NUMBERS)
    if kind <= 4:
        return f"{rng.choice(_FUNCTIONS)}({part()})"
    if kind == 5:
        return f"{rng.choice(('max', 'min'))}({', '.join(part() for _ in range(rng.randint(1, 4)))})"
    if kind == 6:
        return f"({part()})**({part()})"
    if kind == 7:
        return f"({part()})**{rng.choice(('2', '3', '64', '(1/2)', '(-3/7)', '-1', '(1/64)', '0'))}"
    return f"({part()}){rng.choice('+-*/*+')}({part()})"


def _text(rng: random.Random) -> str:
    """A TOML text of an expression, of whichever kind."""
    drawn = rng.random()
    if drawn < 0.5:
        written = expression(rng, rng.randint(1, 7))
    else:
        written = rng.choice(PROGRAMS if drawn < 0.75 else HUGE)
    if rng.random() < 0.3:
        written = written.replace("s", "z1") if "z1" not in written else written
    if rng.random() < 0.1:
        place = rng.randint(0, len(written))
        written = written[:place] + rng.choice(ODD) + written[place:]
    quoted = written.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{quoted}"'


def _value(rng: random.Random) -> str:
    return _text(rng) if rng.random() < 0.4 else rng.choice(VALUES)


# --- changes of a text ---------------------------------------------------------------------------


def _spans(text: str, pattern: str) -> list[tuple[int, int]]:
    return [found.span(1) for found in re.finditer(pattern, text, flags=re.MULTILINE)]


def _put(text: str, span: tuple[int, int], new: str) -> str:
    return text[: span[0]] + new + text[span[1] :]


def _another_value(rng: random.Random, text: str) -> str:
    found = _spans(text, r"^[\w.\"']+ *= *(.+)$")
    return _put(text, rng.choice(found), _value(rng)) if found else text


def _another_key(rng: random.Random, text: str) -> str:
    found = _spans(text, r"^([\w.\"']+) *=")
    return _put(text, rng.choice(found), rng.choice(KEYS)) if found else text


def _another_line(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    made = f"{rng.choice(KEYS)} = {_value(rng)}"
    fresh = rng.choice([made, rng.choice(lines), f"[{rng.choice(KEYS)}]", f"[[{rng.choice(KEYS)}]]", "[[layers]]"])
    lines.insert(rng.randint(0, len(lines)), fresh)
    return "\n".join(lines)


def _in_quotes(rng: random.Random, text: str) -> str:
    found = _spans(text, r'("[^"\n]*")')
    return _put(text, rng.choice(found), _text(rng)) if found else text


def _odd_letter(rng: random.Random, text: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(ODD) + text[place:]


def _without_some(rng: random.Random, text: str) -> str:
    first, last = sorted(rng.randint(0, len(text)) for _ in range(2))
    return text[:first] + text[last:] if rng.random() < 0.5 else text[first:last]


def _repeated(rng: random.Random, text: str) -> str:
    first, last = sorted(rng.randint(0, len(text)) for _ in range(2))
    times = rng.choice((2, 3, 50, 2000))
    return text[:first] + text[first:last][:400] * times + text[last:]


def _spliced(rng: random.Random, text: str) -> str:
    other = rng.choice(SEEDS)
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


CHANGES: tuple[Callable[[random.Random, str], str], ...] = (
    _another_value, _another_value, _another_key, _another_line, _in_quotes, _in_quotes, _odd_letter, _without_some,
    _repeated, _spliced,
)  # fmt: skip


_USUAL = {
    "tokens": ("2", "3", "4", "1024"), "output": ('"sequence"', '"attention"'), "noise": ("0", "0.1", "1e-20", "1e300"),
    "head_layout": ('"split"', '"shared"'), "combine": ('"sum"', '"stack"'), "limit": ('"ode"', '"first_order"'),
    "statistic": ('"gaussian"', '"exact"'), "rank": ("1", "2", "32"), "skip": ("0", "1", "1e6"), "beta": ("1",
    "1e-300", "1e100"),
    "tied": ("true", "false"), "heads": ("1", "2", "48"), "readout": ("1", "[1, 2]", "-1e-300"), "scale": ("2",
    '"1/sqrt(rank)"'),
    "mask": ('"causal"', "[[true, false], [true, true]]"), "position": ("[[0, 1], [1e6, -1e6]]",),
}  # fmt: skip
_OF_LAYERS = ("rank", "skip", "activation", "beta", "tied", "heads", "readout", "scale", "mask", "position")


def _line(rng: random.Random, key: str) -> str:
    if key == "activation" or (key == "scale" and rng.random() < 0.5):
        drawn = expression(rng, rng.randint(1, 6)).replace("z1[1]", "s").replace("z1[2]", "s")
        return f'{key} = "{re.sub("z[123]|rank", "rank" if key == "scale" else "s", drawn)}"'
    return f"{key} = {rng.choice(_USUAL[key]) if rng.random() < 0.93 else rng.choice(VALUES)}"


def _network(rng: random.Random) -> str:
    """A network as it should be written, of values that are usual but for a few."""
    top = [key for key in _USUAL if key not in _OF_LAYERS and (key == "tokens" or rng.random() < 0.2)]
    lines = [_line(rng, key) for key in top]
    for _ in range(rng.choice((1, 1, 2, 3, 60))):
        lines += ["[[layers]]", *(_line(rng, key) for key in _OF_LAYERS if rng.random() < 0.15)]
    return "\n".join(lines)


def _model(rng: random.Random) -> str:
    """A model by expressions, as it should be written."""
    tokens, count = rng.choice((1, 1, 1, 2)), rng.randint(1, 3)
    names = ["z1", "z1", "z1"] if tokens == 1 else ["z1[1]", "z1[2]", "z1[1]"]
    texts = []
    for _ in range(count):
        drawn = expression(rng, rng.randint(1, 7)).replace("z1[1]", "z1").replace("z1[2]", "z2")
        texts.append(re.sub(r"\b(s|rank|z\d)\b", lambda found: rng.choice(names), drawn) + f" + {names[0]}")
    return f'kind = "smi"\nfields = 1\ntokens = {tokens}\nexpressions = {texts}\n'


def case(rng: random.Random) -> bytes:
    """One file."""
    drawn = rng.random()
    if drawn < 0.5:
        return (_network if drawn < 0.2 else _model)(rng).encode()
    text = rng.choice(SEEDS)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        text = rng.choice(CHANGES)(rng, text)
    content = text.encode("utf-8", "surrogatepass")
    for _ in range(rng.choice((0, 0, 0, 1, 20))):
        place = rng.randint(0, len(content))
        content = content[:place] + bytes([rng.randrange(256)]) + content[place + rng.randint(0, 1) :]
    return content


def long_files() -> Iterator[tuple[str, bytes]]:
    """Files of up to a megabyte, each of which a reader could spend minutes on."""
    layer, smi = "[[layers]]\n", 'kind = "smi"\n'
    yield "a name of 500000 parts", b"a" + b".a" * 500_000 + b" = 1\n"
    yield "a table of 20000 parts", b"[a" + b".a" * 20_000 + b"]\nb = 1\n"
    yield "an integer of 100000 digits", b"tokens = 0x" + b"f" * 100_000 + b"\n[[layers]]\n"
    yield "95000 layers", ("tokens = 2\n" + layer * 95_000).encode()
    yield "95000 layers on 1024 tokens", ("tokens = 1024\n" + layer * 95_000).encode()
    activation = ('activation = "tanh({})"\n'.format(f"{k}*s") for k in range(1, 20_000))
    yield "20000 different activations", ("tokens = 2\n" + "".join(layer + text for text in activation)).encode()
    yield "48 layers on 1024 tokens", ("tokens = 1024\n" + layer * 48).encode()
    yield "100000 fields", (smi + f"fields = {[f'a{k}' for k in range(100_000)]}\nexpressions = 'a1'\n").encode()
    yield "200000 outputs", (smi + "fields = ['a']\nexpressions = [" + "'a'," * 200_000 + "]\n").encode()
    sines = "+".join(f"{k}*sin({k}*a)" for k in range(1, 470))
    yield "four long outputs", (smi + f"fields = ['a']\nexpressions = {[sines] * 4}\n").encode()
    sums = ["+".join(f"z{k}" for k in range(j, j + 500)) for j in range(1, 4000, 500)]
    yield "4000 fields", (smi + f"fields = 4000\nexpressions = {sums}\n").encode()
    yield "400000 readouts", b"tokens = 2\n[[layers]]\nreadout = [" + b"1," * 400_000 + b"]\n"
    table = "[" + ("[" + "0," * 512 + "],") * 512 + "]"
    yield "a table of 512 tokens", f"tokens = 512\n[[layers]]\nposition = {table}\n".encode()
    yield "80000 tables", "".join(f"[k{k}]\n" for k in range(80_000)).encode()
    yield "a key of a megabyte", b"a" * 1_000_000 + b" = 1\n"
    yield "equals signs", b"= " * 500_000
    yield "quotes", b"\"'" * 500_000
    yield "an open text", b'a = "' + b"b" * 1_000_000
    yield "two megabytes", b"#" * 2_000_000


# --- the judge -----------------------------------------------------------------------------------


class TooLong(BaseException):
    """No Exception: nobody may catch it."""


@dataclass(frozen=True)
class Verdict:
    """kind: "read", "refused", or what must not be; seconds of processor time."""

    kind: str
    detail: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.kind in ("read", "refused")


_events: list[str] = []
_listening = [False]
_FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.",
    "os.remove",
    "os.rename",
)


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if not _listening[0]:
        return
    if event == "exec":  # modules that are imported late are files
        name = getattr(arguments[0], "co_filename", "?")
        if not os.path.exists(name) and not name.startswith("<frozen"):
            _events.append(f"exec {name}")
    elif event in ("open", "os.rename") and "__pycache__" in str(arguments[0]):
        return  # of a module of Python that is imported late
    elif event.startswith(_FORBIDDEN) or (
        event == "open" and isinstance(arguments[1], str) and set("wax+") & set(arguments[1])
    ):
        _events.append(f"{event} {arguments}"[:200])


def watch() -> None:
    """From here on this process notes what is executed while :func:`judged` reads."""
    sys.addaudithook(_listen)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong after so many seconds of processor time."""

    def late(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judged(content: bytes, path: Path) -> Verdict:
    """What reading does, with the file at ``path``: an answer, or an error in three parts that names the file."""
    path.write_bytes(content)
    _events.clear()
    began, _listening[0] = time.process_time(), True
    try:
        with limited(SECONDS):
            found = smisym.load(path)
        kind, detail = "read", type(found).__name__
    except InputError as error:
        kind, detail = "refused", str(error)
        if not all(word in detail for word in (": given ", "; allowed: ", ". To fix: ", path.name)):
            kind = "unclear"
        elif len(detail) > 4000 or not detail.isprintable():
            kind = "unreadable"
    except TooLong:
        kind, detail = "too long", ""
    except MemoryError:
        kind, detail = "too much memory", ""
    except Exception as error:
        kind, detail = "crashed", f"{type(error).__name__}: {error}"
    finally:
        _listening[0] = False
    seconds = time.process_time() - began
    if _events or (Path.cwd() / CANARY).exists():
        return Verdict("executed", "; ".join(_events), seconds)
    if kind == "read":
        return _kept(found, path, seconds)
    return Verdict(kind, detail, seconds)


def _kept(found: smisym.Architecture | smisym.SMI, path: Path, seconds: float) -> Verdict:
    """What was read is written and read again as the same; what is too long to be written is refused."""
    try:
        with limited(2 * SECONDS):
            smisym.save(found, path)
            again = smisym.load(path)
    except InputError as error:
        if error.what == "declaration to save":
            return Verdict("read", "too long to be written", seconds)
        return Verdict("not read again", str(error), seconds)
    except TooLong:
        return Verdict("too long to be read again", "", seconds)
    if again != found or again.digest != found.digest:
        return Verdict("another one when read again", repr(found), seconds)
    return Verdict("read", type(found).__name__, seconds)


def memory() -> int:
    """Largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
