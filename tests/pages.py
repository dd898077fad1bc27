"""What a page of docs/ shows, and whether what its blocks print is that: numbers within the errors that it states."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]

# 0.2362(2), 9(9)×10⁻⁵, 0.2362 ± 0.0002, or a number without an error.
NUMBER = re.compile(
    r"(?P<value>[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
    r"(?:\((?P<digits>\d+(?:\.\d+)?)\))?(?:×10(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?(?: ± (?P<error>\d+(?:\.\d+)?(?:e[-+]?\d+)?))?"
)
LEVEL = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
SHELL = 'smisym() { "$PYTHON" -m smisym "$@"; }\nset -e -o pipefail\n'


def script_of(path: Path) -> ModuleType:
    """A script as a module, of which tests call single functions."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_numbers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def blocks(text: str) -> list[tuple[str, str, list[str]]]:
    """(language, code, the lines shown as its output) of every block that runs, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    made: list[tuple[str, str, list[str]]] = []
    for before, (language, code) in zip([("", ""), *found], found, strict=False):
        if language == "text":
            assert before[0] in ("python", "sh"), f"an output without a block that prints it: {code}"
            made[-1] = (*made[-1][:2], code.splitlines())
        else:
            assert language in ("python", "sh"), f"a block that no test runs: {language}"
            made.append((language, code, []))
    return made


def numbers(line: str) -> list[tuple[float, float | None]]:
    """(value, error or None) of every number of a line."""
    found = []
    for match in NUMBER.finditer(line):
        value, digits, error = match["value"].replace("−", "-"), match["digits"], match["error"]
        unit = 10.0 ** -(len(value.split(".")[1]) if "." in value and "e" not in value else 0)
        power = 10.0 ** int(match["power"].translate(LEVEL)) if match["power"] else 1.0
        if digits is not None:
            uncertain: float | None = float(digits) * (1.0 if "." in digits else unit) * power
        else:
            uncertain = None if error is None else float(error)
        found.append((float(value) * power, uncertain))
    return found


def alike(shown: str, printed: str) -> bool:
    """The same words, and every number within the error bar that the page shows.

    Numbers without an error bar: within 2 % and 0.01, for those of other machines and versions differ in late digits.
    """
    words = [" ".join(re.sub("[─\\s]+", " ", NUMBER.sub("#", line)).split()) for line in (shown, printed)]
    if words[0] != words[1]:
        return False
    for (a, error), (b, other) in zip(numbers(shown), numbers(printed), strict=True):
        if (error is None) != (other is None):
            # A number whose error is zero is printed without one.
            return False
        if error is None or other is None:
            if abs(a - b) > 0.02 * abs(a) + 0.01:
                return False
        elif abs(a - b) > error or not error / 2 <= other <= error * 2:
            return False
    return True


def matches(shown: list[str], printed: list[str]) -> bool:
    """Line by line; a line ``...`` stands for any number of lines."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(matches(shown[1:], printed[k:]) for k in range(len(printed) + 1))
    return bool(printed) and alike(shown[0], printed[0]) and matches(shown[1:], printed[1:])


def run(language: str, code: str, names: dict[str, Any], folder: Path) -> list[str]:
    """What a block prints."""
    if language == "python":
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(code, "tutorial.md", "exec"), names)
        return out.getvalue().splitlines()
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        ["bash", "-c", SHELL + code], cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, (code, done.stdout, done.stderr)
    return done.stdout.splitlines()
