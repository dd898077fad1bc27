#!/usr/bin/env python3
"""One command on a fresh clone, with nothing but Python:

    python3 run.py demo  [arguments of "smisym demo"]    the shipped example, from declaration to report
    python3 run.py test  [arguments of pytest]           the tests
    python3 run.py check [arguments of pytest]           ruff, mypy, then the tests
    python3 run.py docs  [--quick | --links]             the site, in docs/_build/html

The first call makes the virtual environment ./.venv and installs the package and what it needs into it;
later calls find it up to date and say nothing.  It is set up anew when pyproject.toml changes.
"""

# Only the standard library, and only syntax that Python 3.6 can parse: it must live to say that it is too old.
import hashlib
import json
import os
import subprocess
import sys

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "Scripts", "python.exe") if os.name == "nt" else os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "smisym-set-up.json")
# What each command needs beside the package.
EXTRAS = {"demo": ["fast"], "test": ["test"], "check": ["test"], "docs": ["docs"]}


def main(arguments: "list[str]") -> int:
    if sys.version_info < OLDEST:
        return fail(
            "this is Python {}.{}; smisym needs {}.{} or newer. To fix: call this script with a newer one, "
            "for example python3.12 run.py".format(*sys.version_info[:2], *OLDEST)
        )
    if not arguments or arguments[0] not in EXTRAS:
        print(__doc__, file=sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    command, rest = arguments[0], arguments[1:]
    problem = set_up(EXTRAS[command])
    if problem:
        return fail(problem)
    if command == "demo":
        return become(["-P", "-m", "smisym", "demo", *rest], os.getcwd())
    if command == "test":
        return become(["-m", "pytest", *rest], ROOT)
    if command == "docs":
        return become([os.path.join("docs", "build.py"), *rest], ROOT)
    steps = [["-m", "ruff", "check", "."], ["-m", "mypy"], ["-m", "pytest", *rest]]
    return max([run([PYTHON, *step]) for step in steps], key=abs)


def set_up(extras: "list[str]") -> str:
    """Make .venv hold the package with these extras; returns what went wrong, or nothing."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as handle:
        project = hashlib.sha256(handle.read()).hexdigest()
    done = read_stamp()
    works = python_works()
    if works and done.get("project") == project and done.get("root") == ROOT and set(extras) <= set(done["extras"]):
        return ""
    if not works:
        say("making the virtual environment .venv")
        if run([sys.executable, "-m", "venv", "--clear", VENV]):
            return (
                "could not make the virtual environment .venv with {}. To fix: see the message above; on Debian and "
                "Ubuntu, apt install python3-venv".format(sys.executable)
            )
    extras = sorted(set(extras) | set(done.get("extras", [])))
    say("installing smisym and what it needs into .venv (once; a minute or two)")
    target = ROOT + ("[{}]".format(",".join(extras)) if extras else "")
    # Editable: the environment runs the files of this folder, so that it never lags behind them.
    if run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", target]):
        return "could not install the packages. To fix: see pip's message above; it needs to reach a package index"
    temporary = STAMP + ".tmp"
    with open(temporary, "w") as handle:
        json.dump({"project": project, "root": ROOT, "extras": extras}, handle)
    os.replace(temporary, STAMP)
    return ""


def read_stamp() -> dict:
    """What the last complete set-up recorded; empty where there was none."""
    try:
        with open(STAMP) as handle:
            stamp = json.load(handle)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and isinstance(stamp.get("extras"), list) else {}


def python_works() -> bool:
    """Whether .venv has a Python that runs, is new enough and has pip."""
    code = "import sys, pip; sys.exit(sys.version_info < {!r})".format(OLDEST)
    try:
        return subprocess.call([PYTHON, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def become(arguments: "list[str]", folder: str) -> int:
    """Go on as the environment's Python, so that signals and exit codes are those of the command itself."""
    if os.name == "nt":
        return run([PYTHON, *arguments], folder)
    os.chdir(folder)
    sys.stdout.flush()
    os.execv(PYTHON, [PYTHON, *arguments])


def run(command: "list[str]", folder: str = ROOT) -> int:
    """Exit code of a command."""
    sys.stdout.flush()
    return subprocess.call(command, cwd=folder)


def say(text: str) -> None:
    print("run.py: " + text, file=sys.stderr, flush=True)


def fail(text: str) -> int:
    say(text)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
