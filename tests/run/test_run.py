"""The set-up script: when it sets up, when it is silent, and how it fails."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path: Path) -> ModuleType:
    """run.py as it is in a fresh clone that holds pyproject.toml alone, with every command recorded, none run."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "run.py").write_bytes((ROOT / "run.py").read_bytes())
    spec = importlib.util.spec_from_file_location("run_script", tmp_path / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.calls = []

    def run(command: list[str], folder: str = "") -> int:
        module.calls.append([Path(part).name if os.sep in part else part for part in command])
        if "venv" in command:
            (tmp_path / ".venv").mkdir()
        return module.codes.pop(0) if module.codes else 0

    module.codes = []
    module.run = run
    module.become = lambda arguments, folder: run(["python", *arguments], folder)
    module.python_works = lambda: (tmp_path / ".venv").exists()
    return module


def kinds(module: ModuleType) -> list[str]:
    """What each recorded command was, and forget them."""
    words = ("venv", "pip", "ruff", "mypy", "pytest", "smisym")
    found = [next(word for word in words if word in call) for call in module.calls]
    module.calls.clear()
    return found


def test_sets_up_once_and_again_when_something_changed(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["demo", "-o", "x"]) == 0
    assert script.calls[-1] == ["python", "-P", "-m", "smisym", "demo", "-o", "x"]
    assert kinds(script) == ["venv", "pip", "smisym"]
    assert "run.py: making" in capsys.readouterr().err
    assert script.main(["demo"]) == 0
    assert kinds(script) == ["smisym"]
    assert capsys.readouterr() == ("", "")
    # Tests need more packages; the demo then still finds its own.
    assert script.main(["test"]) == 0
    assert kinds(script) == ["pip", "pytest"]
    assert script.main(["demo"]) == script.main(["test"]) == 0
    assert kinds(script) == ["smisym", "pytest"]
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    assert script.main(["demo"]) == 0
    assert "[fast,test]" in script.calls[0][-1]
    assert kinds(script) == ["pip", "smisym"]
    # A clone that was moved: what is installed points to its old place.
    stamp = json.loads(Path(script.STAMP).read_text())
    Path(script.STAMP).write_text(json.dumps(stamp | {"root": "elsewhere"}))
    assert script.main(["demo"]) == 0
    assert kinds(script) == ["pip", "smisym"]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"project": 1}'])
def test_a_damaged_stamp_means_setting_up_again(script: ModuleType, content: str) -> None:
    script.main(["demo"])
    kinds(script)
    Path(script.STAMP).write_text(content)
    assert script.main(["demo"]) == 0
    assert kinds(script) == ["pip", "smisym"]


@pytest.mark.parametrize(("codes", "word"), [([1], "python3-venv"), ([0, 1], "package index")])
def test_a_failed_set_up_is_told_and_tried_again(
    script: ModuleType, capsys: pytest.CaptureFixture[str], codes: list[int], word: str
) -> None:
    script.codes = codes
    assert script.main(["test"]) == 1
    message = capsys.readouterr().err
    assert word in message and "To fix" in message
    assert "pytest" not in kinds(script)
    assert not Path(script.STAMP).exists()


def test_check_runs_everything_and_fails_if_anything_does(script: ModuleType) -> None:
    script.main(["check"])
    kinds(script)
    for codes, expected in (([0, 0, 0], 0), ([1, 0, 0], 1), ([0, 2, 0], 2), ([0, 0, -9], -9)):
        script.codes = list(codes)
        assert script.main(["check", "-x"]) == expected
        assert script.calls[-1][-1] == "-x"
        assert kinds(script) == ["ruff", "mypy", "pytest"]


def test_the_site_has_packages_of_its_own(script: ModuleType) -> None:
    assert script.main(["docs", "--quick"]) == 0
    assert "[docs]" in script.calls[1][-1]
    assert script.calls[-1] == ["python", "build.py", "--quick"]


def test_an_old_python_is_told_so(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.OLDEST = (99, 0)
    assert script.main(["demo"]) == 1
    assert "needs 99.0 or newer" in capsys.readouterr().err
    assert script.calls == []


def test_usage() -> None:
    for arguments, code, stream in ((["--help"], 0, "stdout"), ([], 2, "stderr"), (["tset"], 2, "stderr")):
        command = [sys.executable, str(ROOT / "run.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert "python3 run.py demo" in getattr(done, stream)


def test_ci_calls_it() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "python3 run.py check" in script.read_text()
