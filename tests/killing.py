"""Commands that are killed, share a folder, or find damage in it: what they print in the end.

``benchmarks/kill.py`` kills many, ``run/test_killed.py`` some.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NETWORK = "tokens = 2\n[[layers]]\n"
COMMANDS = {
    "curve": ["curve", "net.toml", "--alpha", "0.1:0.5:9", "--samples", "2048"],
    "thresholds": ["thresholds", "net.toml", "--samples", "2048", "--no-quadrature"],
    "gamp": ["gamp", "net.toml", "--alpha", "2", "--dim", "200", "-o", "out.npz"],
    "analyze": [
        "analyze",
        "net.toml",
        "-o",
        "out",
        "--alpha",
        "0:0.6:4",
        "--dim",
        "40",
        "--runs",
        "1",
        "--samples",
        "1024",
    ],
}
# What a run leaves in its folder beside what it prints, all of it the same to the bit.
FILES = ("out.npz", "out/*")
DAMAGES = ("cut", "flipped", "zeros", "empty", "foreign", "another entry", "folder", "deep")
# Seconds that a command may take, other work beside.
_LIMIT = 900


@dataclass(frozen=True)
class Ended:
    """code, out: exit code and stdout.  files: what was written.  err: stderr, of which nothing is compared."""

    code: int
    out: str
    files: dict[str, bytes]
    err: str = ""

    def same(self, other: Ended) -> bool:
        """To the bit; stderr tells times and is left out."""
        return (self.code, self.out, self.files) == (other.code, other.out, other.files)


def begin(command: list[str], folder: Path, state: str = "state") -> subprocess.Popen[str]:
    """One command in a folder of its own; workers=1, so that nothing else runs when it is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.toml").write_text(NETWORK)
    rest = [] if command[0] == "gamp" else ["--workers", "1"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SMISYM_BACKEND": "numpy"}
    return subprocess.Popen(
        [sys.executable, "-m", "smisym", *command, *rest, "--json", "--state", state],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], folder: Path) -> Ended:
    """What became of it."""
    out, err = process.communicate(timeout=_LIMIT)
    written = [path for pattern in FILES for path in sorted(folder.glob(pattern))]
    return Ended(process.returncode, out, {path.name: path.read_bytes() for path in written}, err)


def worked(process: subprocess.Popen[str]) -> float:
    """Seconds of processor time of a process so far, infinite once it has ended; Linux tells them."""
    if process.poll() is not None:
        return math.inf
    told = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def wait(process: subprocess.Popen[str], seconds: float) -> None:
    """Until it has worked for so long, whatever else the machine does, or has ended."""
    while worked(process) < seconds:
        time.sleep(0.003)


def killed(command: list[str], folder: Path, seconds: float) -> bool:
    """Kill a run after so much work, at once and without a word; whether it was still at it."""
    process = begin(command, folder)
    wait(process, seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def damage(rng: random.Random, folder: Path, kind: str, pattern: str = "*") -> Path | None:
    """Spoil one file of the state whose name is like that; which one, or None where there is none."""
    kept = sorted(path for path in folder.glob("state/*/*") if path.is_file())
    found = [path for path in kept if path.match(pattern)]
    if not found:
        return None
    path, other = rng.choice(found), rng.choice(kept)
    content = path.read_bytes()
    place = rng.randrange(max(len(content), 1))
    bit = 1 << rng.randrange(8)
    changed = {
        "cut": content[:place],
        "flipped": content[:place] + bytes(b ^ bit for b in content[place : place + 3]) + content[place + 3 :],
        "zeros": bytes(len(content)),
        "empty": b"",
        "foreign": rng.choice([b"\x89PNG\r\n\x1a\n" + os.urandom(500), b'{"value": 3}', b"[]", b"null", b'"text"',
        b"1e999"]),
        "another entry": other.read_bytes(),
        "deep": b"[" * 100_000,
    }  # fmt: skip
    path.unlink()
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(changed[kind])
    return path
