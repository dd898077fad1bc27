"""Hostile command lines: what is given to each command and option, and a judge of what comes of it.

``benchmarks/fuzz.py`` runs each in a process of its own, ``run/test_hostile_commands.py`` some in its own.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

NETWORK = "tokens = 2\n[[layers]]\n"
BIG = "1" + "0" * 30
DIGITS = "9" * 5000
# What is no number of any kind, and numbers that no option takes.
NO_NUMBERS = ("", "x", "nan", "-nan", "inf", "-inf", "1e400", "0x10", "--", "\ud800", "9**9", DIGITS)


def files(folder: Path) -> None:
    """Files of every fault that one may have, in a folder."""
    (folder / "net.toml").write_text(NETWORK)
    (folder / "folder").mkdir()
    (folder / "file").write_text("")
    (folder / "latin.toml").write_bytes(b"tokens = 2 # \xe9\n")
    (folder / "utf16.toml").write_bytes(NETWORK.encode("utf-16"))
    (folder / "null.toml").write_bytes(b"\0" * 1000)
    (folder / "huge.toml").write_bytes(b"#" * 2_000_000)
    (folder / "link.toml").symlink_to(folder / "link.toml")
    (folder / "net\udcff.toml").write_text(NETWORK)
    os.mkfifo(folder / "pipe.toml")
    os.mkfifo(folder / "pipe.npz")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2, 4)), np.full((6, 2, 2), 0.5)
    objects = np.array([{}], dtype=object)
    arrays = {
        "good": {"X": X, "y": y}, "objects": {"X": objects, "y": y}, "text": {"X": X.astype(str), "y": y},
        "empty": {"X": X[:0], "y": y[:0]},
        "scalar": {"X": np.float64(1), "y": y}, "nan": {"X": X * np.nan, "y": y}, "huge": {"X": X * 1e300, "y": y},
        "flat": {"X": X[:, :0], "y": y},
    }  # fmt: skip
    for name, content in arrays.items():
        np.savez(folder / f"{name}.npz", **content)
    whole = (folder / "good.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "flipped.npz").write_bytes(bytes(b ^ 0xFF if k % 97 == 0 else b for k, b in enumerate(whole)))
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (100000000, 2, 400), }"
        for name in ("X.npy", "y.npy"):
            archive.writestr(name, header.ljust(127) + b"\n" + b"\0" * 1000)
    with zipfile.ZipFile(folder / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\0" * (1 << 24))
        archive.writestr("y.npy", b"\0")


PLACES = (
    "absent.toml", "folder", "latin.toml", "utf16.toml", "null.toml", "huge.toml", "link.toml", "pipe.toml", "file",
    "file/x.toml", "",
    "/dev/zero", "/dev/null", "x" * 5000, "\ud800.toml", "-", "/proc/self/mem", "net.toml/",
)  # fmt: skip
_QUICK = ("--samples", "64", "--scrambles", "2")


def _numbers(command: list[str], option: str, more: tuple[str, ...]) -> Iterator[list[str]]:
    for value in (*NO_NUMBERS, *more):
        yield [*command, f"{option}={value}"]


def _of_dynamics() -> Iterator[list[str]]:
    start = ["dynamics", "net.toml"]
    yield from ([*start, "--dim", "10", f"--alpha={value}"] for value in (*NO_NUMBERS, "0", "-1", "1e-9", "1e300"))
    yield from _numbers([*start, "--alpha", "1"], "--dim", ("-1", "0", "1", "1.5", BIG, "1" + "0" * 400))
    start += ["--alpha", "1", "--dim", "10"]
    for option in ("--seeds", "--steps", "--epochs", "--batch"):
        yield from _numbers(start, option, ("0", "-1", "1.5"))
    for option in ("--seeds", "--steps", "--epochs"):
        yield [*start, f"{option}={BIG}"]
    yield from ([*start, f"--known={value}"] for value in (*NO_NUMBERS, "1", "-0.1"))
    yield from ([*start, f"--damping={value}"] for value in (*NO_NUMBERS, "1", "-0.1"))
    yield from ([*start, f"--decay={value}"] for value in (*NO_NUMBERS, "-1"))
    yield from ([*start, f"--rate={value}"] for value in (*NO_NUMBERS, "0", "-1", "sgd=", "=1", "sgd=0.1=2", "x=0.1"))
    yield from ([*start, f"--optimizer={value}"] for value in ("", "SGD", "sgd,adam", "__class__", "\ud800"))
    yield [*start, "--optimizer", "none", "--optimizer", "sgd"]
    yield from (
        [*start, "-o", place]
        for place in ("", "x.csv", "folder", "absent/x.svg", "file/x.svg", "/proc/x.svg", "x" * 300 + ".png")
    )


def refused() -> Iterator[list[str]]:
    """Command lines that must end with exit code 2; names of files are those of :func:`files`."""
    rest = {
        "thresholds": [], "curve": ["--alpha", "0.1"], "gamp": ["--alpha", "1", "--dim", "10"],
        "dynamics": ["--alpha", "1", "--dim", "10"], "derive": ["-o", "out.html"],
        "analyze": ["-o", "out"], "check": [],
    }  # fmt: skip
    for command, options in rest.items():
        yield [command]
        yield [command, "net.toml", *options, "more.toml"]
        yield [command, "net.toml", *options, "--unknown"]
        yield from ([command, place, *options] for place in PLACES)
        yield from _numbers([command, "net.toml", *options], "--seed", ("-1", "1.5"))
    for command in ("thresholds", "curve", "analyze"):
        start = [command, "net.toml", *rest[command]]
        yield from _numbers(start, "--samples", ("-1", "0", "1", "1000", "1.5", BIG, str(2**60), str(2**200)))
        yield from _numbers(start, "--scrambles", ("-1", "0", "1", "3", BIG, "8192000000"))
        yield from _numbers(start, "--accuracy", ("0", "-1"))
        yield from _numbers([*start, "--accuracy", "0.1"], "--most-samples", ("-1", "0", "1.5", "3"))
        yield from _numbers([*start, *_QUICK], "--rtol", ("0", "-1"))
        yield from _numbers([*start, *_QUICK], "--workers", ("0", "-1", "1.5"))
        yield [*start, *_QUICK, "--most-samples", "64"]
        yield [*start, "--accuracy", "0.1", "--samples", "64"]
    for command in ("curve", "analyze"):
        start = [command, "net.toml", *(["-o", "out"] if command == "analyze" else []), *_QUICK]
        more = (
            "-1", "0:1:0", "0:1:-1", "1:0:3", "0:1:2.5", "0:1:2:3", "0:1", ":", "::", "0:nan:3", "nan:1:3", "0:1:nan",
            "0:inf:3", "0:1e400:3",
            f"0:1:{BIG}", f"0:1:{DIGITS}", "0:1:100001", ",", "0.1,", "0.1,,0.2", "0.1;0.2", "1e7", "0:1e300:3",
            "0 1", "1,2:3:4",
        )  # fmt: skip
        yield from ([*start, f"--alpha={value}"] for value in (*NO_NUMBERS, *more))
    for value in ("", "warm", "INFORMED", "informed "):
        yield ["curve", "net.toml", "--alpha", "0.1", *_QUICK, f"--start={value}"]
    yield from _numbers(["thresholds", "net.toml", *_QUICK], "--stages", ("0", "-1", "1.5"))
    gamp = ["gamp", "net.toml"]
    yield from (
        [*gamp, "--dim", "10", f"--alpha={value}"] for value in (*NO_NUMBERS, "0", "-1", "1e-9", "1e9", "1e300")
    )
    yield from _numbers([*gamp, "--alpha", "1"], "--dim", ("-1", "0", "1", "1.5", BIG, "1" + "0" * 400))
    start = [*gamp, "--alpha", "1", "--dim", "10"]
    yield from _numbers(start, "--iterations", ("0", "-1", "1.5"))
    yield from ([*start, f"--damping={value}"] for value in (*NO_NUMBERS, "1", "-0.1", "2"))
    yield from ([*start, f"--tol={value}"] for value in (*NO_NUMBERS, "0", "1", "-1"))
    yield from (
        [*start, "-o", place]
        for place in ("", "x.csv", "folder", "absent/x.npz", "file/x.npz", "/proc/x.npz", "x" * 300 + ".npz")
    )
    yield from _of_dynamics()
    data = (
        "objects",
        "text",
        "empty",
        "scalar",
        "nan",
        "huge",
        "flat",
        "cut",
        "flipped",
        "bomb",
        "zeros",
        "pipe",
        "absent",
    )
    yield from ([*gamp, "--data", f"{name}.npz"] for name in data)
    yield from (
        [*gamp, "--data", place]
        for place in ("", "folder", "file", "net.toml", "/dev/zero", "/dev/null", "\ud800", "x" * 5000)
    )
    yield [*gamp, "--data", "good.npz", "--alpha", "1"]
    yield from (["derive", "net.toml", "-o", place] for place in (
        "", "x.pdf", "folder", "absent/x.html", "file/x.html", "x" * 300 + ".html", "/proc/x.html", "folder/.html/x",
        "/dev/null"
    ))  # fmt: skip
    yield from (["derive", "net.toml", "--code", language] for language in ("", "c", "NUMBA", "\ud800"))
    yield ["derive", "net.toml", "--code", "numba", "-o", "x.html"]
    analyze = ["analyze", "net.toml", *_QUICK]
    yield from ([*analyze, "-o", place] for place in ("", "file", "file/x", "/proc/x", "x" * 300))
    analyze += ["-o", "out"]
    yield from _numbers(analyze, "--dim", ("-1", "0", "1", "1.5", BIG, "1" + "0" * 400))
    yield from _numbers(analyze, "--runs", ("-1", "1.5", BIG))
    yield from _numbers(analyze, "--iterations", ("0", "-1"))
    yield from ([*analyze, f"--damping={value}"] for value in (*NO_NUMBERS, "1", "-0.1"))
    for command in ("thresholds", "curve", "gamp", "dynamics", "analyze"):
        yield from (
            [command, "net.toml", *rest[command], "--state", place]
            for place in ("", "file", "file/x", "/proc/x", "x" * 300)
        )
    yield from (
        ["check", "net.toml", f"--only={value}"] for value in ("", ",", "magic", "sheets,magic", "__class__", "\ud800")
    )
    yield from (["demo", "-o", place] for place in ("", "file", "file/x"))
    yield from (["demo", f"--workers={value}"] for value in ("0", "-1", DIGITS))
    yield from ([word] for word in ("", "nonsense", "--nonsense", "-x", "__import__", "\ud800", "x" * 5000))
    yield []


def complaint(code: int, out: str, err: str) -> str:
    """What is wrong with a refusal; nothing where it is as it should be."""
    if code != 2:
        return f"exit code {code}"
    if "Traceback" in err or ("Error:" in err and "Usage:" not in err):
        return "a traceback"
    if out and "Usage:" not in out:  # smisym alone shows its help
        return "something on stdout"
    words = err + out
    if "Usage:" not in words and not all(word in words for word in (": given ", "; allowed: ", ". To fix: ")):
        return "no clear error"
    return "" if len(words) < 6000 or DIGITS in words or "x" * 5000 in words else "a long error"


def command(arguments: list[str]) -> list[str | bytes]:
    """As a process is given it; what is no text of the system goes as its bytes."""
    return [sys.executable, "-m", "smisym", *(text.encode("utf-8", "surrogatepass") for text in arguments)]
