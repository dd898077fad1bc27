"""The wheel and the sdist: they hold what they must, pass twine, and install where nothing else is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "smisym"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What is needed at run time and is no module.
DATA = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
# In an environment with nothing but the wheel, from another folder.
TRIAL = """
import importlib.metadata, pathlib, sys
import smisym
from smisym.declare import shipped
assert pathlib.Path(smisym.__file__).is_relative_to(sys.prefix), smisym.__file__
assert smisym.__version__ == importlib.metadata.version("smisym")
network = smisym.load("network.toml")
trail = smisym.derive(network, checks=False)
page = smisym.write_derivation(trail, "network.html").read_text()
assert "<math" in page and "</html>" in page
assert shipped.published_two_layers()
"""


def run(*command: object, folder: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, wheel), the wheel made of the sdist, from a copy: a build leaves files beside what it builds."""
    tools = pytest.importorskip("build", reason="pip install build twine")
    assert tools
    folder = tmp_path_factory.mktemp("packages")
    copy, out = folder / "source", folder / "dist"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(PACKAGE, copy / "smisym", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--outdir", out, copy, folder=folder)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_sdist_and_wheel_hold_everything_and_pass_twine(built: tuple[Path, Path]) -> None:
    pytest.importorskip("twine", reason="pip install build twine")
    sdist, wheel = built
    assert run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel).count("PASSED") == 2
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {path.relative_to(ROOT).as_posix() for path in [*DATA, *PACKAGE.rglob("*.py")]}
    assert {"smisym/py.typed"} < wanted and wanted <= held
    assert {name.split("/")[0].split("-")[0] for name in held} == {"smisym"}
    with tarfile.open(sdist) as archive:
        source = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert wanted | {"pyproject.toml", "README.md", "LICENSE"} <= source


@pytest.mark.slow
def test_the_wheel_works_alone_and_every_extra_resolves(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In a fresh environment, in which nothing but the wheel and what it asks for is installed."""
    _, wheel = built
    venv.create(tmp_path / "alone", with_pip=True)
    python = tmp_path / "alone" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", wheel)
    shutil.copy(PACKAGE / "declare" / "shipped" / "causal.toml", tmp_path / "network.toml")
    run(python, "-I", "-c", TRIAL, folder=tmp_path)
    table = run(python, "-m", "smisym", "thresholds", "network.toml", "--samples", 64, folder=tmp_path)
    assert "overlaps just below" in table and "perfect_amp" in table
    run(*pip, "install", "--dry-run", f"{wheel}[{','.join(PROJECT['optional-dependencies'])}]")


def test_extras_that_are_named_are_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.py")]
    named = {
        name
        for page in pages
        for match in re.findall(r"smisym\[([\w,]+)\]", page.read_text())
        for name in match.split(",")
    }
    assert {"fast", "gpu", "verify", "tables"} <= named <= set(PROJECT["optional-dependencies"])
