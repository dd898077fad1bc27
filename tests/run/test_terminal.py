"""What a person sees: tables that fit 80 columns, advice in the options of a command, progress, time beforehand."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_results
import numpy as np
import pytest
from typer.testing import CliRunner

import smisym
from smisym import cli
from smisym.base.errors import InputError
from smisym.base.solution import Result
from smisym.declare import io
from smisym.declare.architecture import Architecture, Attention
from smisym.report import wording
from smisym.run import cost, progress, task, terminal

MODEL = smisym.compile(Architecture(2, (Attention(),)))

# --- tables


def diagonal(values: np.ndarray) -> list[list[float]]:
    return np.diag(values).tolist()


def a_curve(fields: int) -> dict[str, Any]:
    """Numbers of every awkward length."""
    points = copy.deepcopy(fake_results.points())
    for k, point in enumerate(points):
        values = np.linspace(0, 1, fields) ** (k + 1)
        point["Q"], point["Q_error"] = diagonal(values), diagonal(1e-9 * values if k % 2 else 1e-2 * values)
    return {"points": points}


def thresholds(fields: int) -> dict[str, Any]:
    names = [f"layer {1 + i // 2} {'query' if i % 2 else 'key'}[{i + 1}]" for i in range(fields)]
    made = [
        {
            "kind": "perfect_stable", "layers": [1 + i // 2 for i in range(fields)], "names": names, "alpha": 1e-3 + i,
            "error": 1e-9, "order": None, "subspace": np.eye(fields).tolist(),
            "Q": diagonal(np.linspace(0.123456, 0.98765, fields)),
        }
        for i in range(3)
    ]  # fmt: skip
    return {"thresholds": made}


def a_run(fields: int, steps: int) -> dict[str, Any]:
    iterations = [
        {"step": k, "Q": diagonal(np.full(fields, 0.123456)), "overlap": None, "change": 1 / (k + 1) if k else None}
        for k in range(steps)
    ]
    return {"iterations": iterations, "result": "max_steps", "reason": "made all steps; damping of 0.3 settles it"}


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("fields", [1, 2, 3, 6, 12])
def test_tables_fit_80_columns_and_cut_no_number(fields: int, capsys: pytest.CaptureFixture[str]) -> None:
    document = a_curve(fields)
    terminal.print_curve(document)
    lines = printed(capsys)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line or "..." in line for line in lines)
    words = " ".join(lines)
    for point in document["points"]:
        for i in range(fields):
            assert terminal.format_with_error(point["Q"][i][i], point["Q_error"][i][i]) in words
    heads = ([f"Q_{i + 1}{i + 1}" if fields < 10 else f"Q_{i + 1},{i + 1}" for i in range(fields)], "Bayes", "result")
    assert all(head in words for head in (*heads[0], *heads[1:]))
    terminal.print_thresholds(thresholds(fields))
    terminal.print_gamp(a_run(fields, 5))
    lines = printed(capsys)
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).count("0.1235") >= 3 + 5 * fields


@pytest.mark.parametrize("steps", [1, 2, 24, 25, 26, 101, 5000])
def test_the_table_of_iterations_is_short_and_has_both_ends(steps: int, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_gamp(a_run(2, steps), explain=str.upper)
    lines = printed(capsys)
    numbers = [int(line.split()[0]) for line in lines if re.match(r" \d+ ", line)]
    assert len(numbers) <= 24 and numbers == sorted(set(numbers))
    assert numbers[0] == 0 and numbers[-1] == steps - 1
    assert ("are not shown" in " ".join(lines)) == (steps > 24)
    assert lines[-1].startswith("max_steps: MADE ALL STEPS")


# --- the words of the command line

FOREIGN = re.compile(
    r"(?<![-\w])(max_steps|max_nodes|rtol|model\.observe)\b|(?<![-\w])(raise|add) (samples|damping|tol)\b"
)


@pytest.mark.parametrize("command", ["thresholds", "curve", "gamp", "analyze", "demo"])
@pytest.mark.parametrize("result", [code for code in Result if code is not Result.INTERRUPTED])
@pytest.mark.parametrize("accuracy", [False, True])
def test_advice_names_options_that_the_command_has(command: str, result: Result, accuracy: bool) -> None:
    """With --accuracy --samples is refused, and without it --most-samples is."""
    options = task.options_of(command)
    text = wording.of_result(result, options, accuracy)
    assert not FOREIGN.search(text)
    assert ("--samples" if accuracy else "--most-samples") not in text
    shown = CliRunner().invoke(cli.app, [command, "--help"]).stdout
    for option in re.findall(r"--[a-z]+", text):
        assert option in shown


def test_input_errors_name_options() -> None:
    options = task.options_of("gamp") | task.options_of("thresholds")
    cases = {
        ("samples, scrambles", "scrambles >= 2", "use for example samples=8192, scrambles=8"): (
            "--samples, --scrambles: given 1; allowed: --scrambles >= 2. "
            "To fix: use for example --samples 8192 --scrambles 8."
        ),
        ("max_steps", "a whole number", "give it"): "--iterations: given 1; allowed: a whole number. To fix: give it.",
        ("alpha and D", "what fits", "at this alpha, D = 39 fits"): (
            "--alpha and --dim: given 1; allowed: what fits. To fix: at this --alpha, --dim 39 fits."
        ),
        ("X", "numbers", "X = (X - 1) / X.std()"): "X: given 1; allowed: numbers. To fix: X = (X - 1) / X.std().",
        ("stages", "few", "use quadrature=False"): "--stages: given 1; allowed: few. To fix: use --no-quadrature.",
        ("quadrature", "a chart", "leave quadrature out"): (
            "--quadrature: given 1; allowed: a chart. To fix: leave --quadrature out."
        ),
    }
    for (what, allowed, fix), said in cases.items():
        assert wording.of_input_error(InputError(what, 1, allowed, fix), options) == said


# --- progress


class Terminal:
    """stderr as a terminal, recorded."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def test_the_bar_says_what_is_solved_and_moves_inside_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_bar("thresholds", 2) as step:
        for k in range(40):
            before = step.inside
            step.evaluated({"evaluations": k, "seconds": 0.1, "what": "stage 2"})
            assert before < step.inside < 1
        assert step.left is None
        assert "thresholds: stage 2 0/2, 40 evaluations" in step.text()
        step({})
        assert step.inside == 1
        assert step.left is None  # the second may be all the work
    assert "thresholds" in screen.text


class Clock:
    """The time of the machine, which goes on by what is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


def test_no_terminal_no_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with progress.progress_bar("curve", 3) as step:
        for _ in range(3):
            step({})
    assert capsys.readouterr().err == ""
    clock = Clock(monkeypatch)
    with progress.progress_bar("curve", 4) as step:
        clock.now = 40
        step.evaluated({"what": "a"})  # inside a part too: the first may take long
        for _ in range(3):
            clock.now += 40
            step({})
        assert step.left is not None
    lines = capsys.readouterr().err.splitlines()
    assert [line[:20] for line in lines[:-1]] == [f"smisym: curve: a {k}/4" for k in range(4)]
    assert ["left" in line for line in lines] == [False, False, False, True, False]
    assert lines[-1].startswith("smisym: curve done")


def test_lines_of_a_log_are_rare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One soon, then at most one in half a minute, and later one in a fifth of the time so far."""
    clock = Clock(monkeypatch)
    with progress.progress_bar("curve") as step:
        for _ in range(1000):
            clock.now += 1
            step({})
    told = [int(line.split()[2].strip(",")) for line in capsys.readouterr().err.splitlines()[:-1]]
    assert told[:4] == [6, 37, 68, 99]
    gaps = [after - before for before, after in itertools.pairwise(told)]
    assert all(gap >= max(30, 0.2 * at) for gap, at in zip(gaps, told[:-1], strict=True))
    assert 10 < len(told) < 20


def test_a_map_tells_who_watches_and_no_one_else() -> None:
    omap = smisym.overlap_map(MODEL, samples=16, scrambles=2)
    seen: list[Any] = []
    with progress.reporting(seen.append, "x") as report, progress.watching(omap, report):
        omap.on_evaluation({"what": "a"})  # type: ignore[attr-defined]
    assert seen == [{"what": "a"}]
    assert omap.on_evaluation is None  # type: ignore[attr-defined]


def test_evaluations_are_counted_in_samples_of_the_map(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of one scramble, and of maps with other numbers of samples, are shares of one, as in the estimate."""
    omap = smisym.overlap_map(MODEL, samples=64, scrambles=4)
    with progress.progress_bar("x", 1) as step, progress.watching(omap, step):
        omap.at(0, np.zeros((1, 1)))
        assert "0.2 evaluations" in step.text() or "0.3 evaluations" in step.text()  # type: ignore[attr-defined]
        omap.evaluate(np.zeros((1, 1)))
        assert "x 0/1, 1 evaluations" in step.text()  # type: ignore[attr-defined]
        omap.sibling(128).evaluate(np.zeros((1, 1)))
        assert "x 0/1, 3 evaluations" in step.text()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="progress=True"), progress.reporting(3, "x"):  # type: ignore[arg-type]
        pass


# --- time beforehand


class Slow:
    """A channel each of whose posteriors takes so many seconds, and ends as is said."""

    def __init__(self, clock: Clock, seconds: float, result: Result) -> None:
        self.clock, self.seconds, self.result = clock, seconds, result
        self.timed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(MODEL.channel, name)

    def moments(self, y: Any, omega: np.ndarray, V: np.ndarray, **how: Any) -> Any:
        self.timed.append(len(omega))
        self.clock.now += self.seconds * len(omega)
        return SimpleNamespace(result=self.result)


def test_the_estimate_knows_samples_and_slow_posteriors(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def of(seconds: float, result: Result) -> tuple[Slow, smisym.OverlapMap]:
        slow = Slow(clock, seconds, result)
        model = dataclasses.replace(MODEL, channel=slow)  # type: ignore[arg-type]
        return slow, smisym.overlap_map(model, samples=1024, scrambles=8, workers=1)

    _, omap = of(1e-3, Result.SUCCESS)
    assert cost.estimate(omap).seconds == pytest.approx(1.024)
    assert cost.estimate(omap, samples=4096).seconds == pytest.approx(4.096)
    slow, omap = of(3.0, Result.SUCCESS)
    assert cost.estimate(omap).seconds == pytest.approx(3072)
    assert slow.timed == [1] * 6, "of slow posteriors one is timed, after the first use"
    assert str(cost.estimate(omap)) == "about 51 min"
    assert str(cost.estimate(of(3.0, Result.INTEGRATION)[1])) == "more than 51 min"


def test_the_estimate_of_a_real_map() -> None:
    found = smisym.estimate(MODEL, samples=1024)
    assert found.seconds > 0 and not found.at_least
    with pytest.raises(InputError):
        smisym.estimate(MODEL, samples=0)


def test_long_commands_say_so_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io.save(Architecture(2, (Attention(),)), tmp_path / "n.toml")
    command = ["thresholds", str(tmp_path / "n.toml"), "--samples", "256", "--stages", "1", "--no-quadrature"]
    assert "evaluation of the map" not in CliRunner().invoke(cli.app, command).stderr
    # A machine on which whatever is timed takes a second.
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    said = CliRunner().invoke(cli.app, command).stderr
    took = r"\d+(\.\d)? (s|min|h)"
    assert re.search(rf"thresholds take about {took} to {took}: an evaluation of the map takes about {took}\n", said), (
        said
    )
    command[2:4] = ["--accuracy", "0.002"]
    said = CliRunner().invoke(cli.app, command).stderr
    assert re.search(rf"takes about {took} with 4096 samples, and more as errors usually fall", said), said


# --- the process


def smisym_process(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command.replace("smisym", f"{sys.executable} -m smisym")],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_outputs_that_cannot_be_written_and_readers_that_leave(tmp_path: Path) -> None:
    io.save(Architecture(2, (Attention(),)), tmp_path / "n.toml")
    gamp = "smisym gamp n.toml --alpha 1 --dim 20"
    done = smisym_process(f"{gamp} > /dev/full", tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "No space left on device. To fix: free some space" in done.stderr
    # The reader has left before anything is written.
    left = smisym_process(f"({gamp} --json; echo $? >&2) | true", tmp_path)
    assert "Traceback" not in left.stderr and "Broken" not in left.stderr and "Exception" not in left.stderr
    done = smisym_process(f"{gamp} -o /dev/full", tmp_path)
    assert done.returncode == 2 and ".npz" in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(cli.app, ["--version"]).stdout == f"smisym {smisym.__version__}\n"
    assert json.loads(io.to_json({"v": smisym.__version__}))["v"] == io.package_version()
