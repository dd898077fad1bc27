"""``smisym check``: a table, counterexamples, one JSON document, exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer import Exit
from typer.testing import CliRunner, Result

import smisym
from smisym import Architecture, Attention, InputError, save
from smisym.cli import app
from smisym.run import task, terminal
from smisym.verify import PROPERTIES, check
from smisym.verify.properties import Tried
from smisym.verify.reports import Report, Row


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "one_layer.toml"
    save(Architecture(2, (Attention(),)), path)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_table_that_a_person_reads(network: str) -> None:
    shown = run("check", network, "--only", "mapping, bits", "--only", "truth")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["property", "tried", "worst", "verdict"]
    assert [line.split()[0] for line in lines[2:5]] == ["mapping", "truth", "bits"]
    assert all(line.rstrip().endswith("holds") for line in lines[2:5])
    assert max(map(len, lines)) <= 80
    assert "fails with a chance of at most 6.7e-05 in all (seed 0)" in " ".join(shown.stdout.split())


def test_nothing_tried_is_no_success(network: str) -> None:
    """Layers are finitely many: the one property that is asked for does not apply."""
    for more in ((), ("--json",)):
        shown = run("check", network, "--only", "many-layers", *more)
        assert shown.exit_code == 3 and "no property was tried" in shown.stderr
    assert json.loads(shown.stdout)["ok"] is False


def test_a_bound_that_is_reached_is_said_to_hold(network: str) -> None:
    """The last threshold of one layer is what counting gives: 1, which is no failure, and the table says so."""
    shown = " ".join(run("check", network, "--only", "thresholds").stdout.split())
    assert "thresholds 3 thresholds 1 holds" in shown
    assert "up to 1 holds" in shown and "thresholds at 1: on its bound, not beyond it" in shown
    other = " ".join(run("check", network, "--only", "bits").stdout.split())
    assert "up to 1 holds" in other and "at 1:" not in other and "t, p:" not in other


def test_properties_are_listed(network: str) -> None:
    shown = run("check", network, "--only", "?")
    assert shown.exit_code == 0
    words = " ".join(shown.stdout.split())
    assert all(one.name in words for one in PROPERTIES)
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_one_document(network: str) -> None:
    shown = run("check", network, "--only", "symmetry", "--seed", "5", "--json")
    found = json.loads(shown.stdout)
    assert shown.exit_code == 0 and found["ok"] and found["command"] == "check" and found["seed"] == 5
    assert found["settings"] == {"only": ["symmetry"], "thorough": False}
    assert [row["property"] for row in found["properties"]] == ["symmetry"]
    assert {"schema", "architecture", "package_version"} <= set(found)


def test_quick(network: str) -> None:
    """An eighth of the cases, said so in the document; not together with eight times as many."""
    quick, usual = (json.loads(run("check", network, "--only", "score", "--json", *more).stdout)
                    for more in (["--quick"], []))  # fmt: skip
    assert quick["settings"] == {"only": ["score"], "thorough": False, "quick": True} and quick["quick"]
    assert 0 < 4 * quick["properties"][0]["tried"] <= usual["properties"][0]["tried"] and "quick" not in usual
    both = run("check", network, "--quick", "--thorough")
    assert both.exit_code == 2 and "--thorough, --quick: given 'both'; allowed: one of them, or none" in both.stderr


def test_bad_input(network: str) -> None:
    assert "no_such.toml" in (lost := run("check", "no_such.toml")).stderr and lost.exit_code == 2
    wrong = run("check", network, "--only", "magic")
    assert wrong.exit_code == 2 and "--only: given 'magic'; allowed: names of properties: mapping" in wrong.stderr
    assert run("check", network, "--seed", "-1").exit_code == 2


def test_a_failure_is_shown_with_its_program(capsys: pytest.CaptureFixture[str]) -> None:
    one = PROPERTIES[0]
    failed = Tried(7, "networks", 31.0, None, False, "found so", "print('the lines')")
    report = Report((Row(one.name, one.sentence, one.source, failed, 0.1),), 0, False, 1e-4, 0.0)
    terminal.print_check(report.record())
    shown = capsys.readouterr().out
    assert "31" in shown and "fails" in shown and one.sentence[:40] in shown and "print('the lines')" in shown
    terminal.saying_checked(lambda record: None)(report.rows[0])
    assert "mapping fails" in capsys.readouterr().err
    with pytest.raises(Exit) as ended:
        task.finish_check(report.record(), False)
    assert ended.value.exit_code == 3 and "1 of 1 property fails: mapping" in capsys.readouterr().err


def test_progress_is_told_of_each_property() -> None:
    told: list[str] = []
    check(Architecture(2, (Attention(),)), only=["symmetry", "bits"], progress=lambda row: told.append(row.name))
    assert told == ["symmetry", "bits"]


def test_what_was_tried_is_kept_by_all_that_it_depends_on(tmp_path: Path) -> None:
    one = Architecture(2, (Attention(),))
    whole = check(one, only="symmetry, bits", store=tmp_path)
    assert {path.name.split("_")[1] for path in tmp_path.rglob("entry_*")} == {"symmetry", "bits"}
    assert check(one, only="bits", store=tmp_path).rows == whole.rows[1:]
    check(one, only="bits", store=tmp_path, seed=1)
    assert len(list(tmp_path.rglob("entry_bits*"))) == 2
    for entry in tmp_path.rglob("entry_bits*"):  # damaged: tried again
        entry.write_text(entry.read_text().replace("holds", "fails"))
    assert check(one, only="bits", store=tmp_path).ok


def test_a_failure_is_kept_with_its_counterexample(tmp_path: Path) -> None:
    one = PROPERTIES[0]
    failed = Tried(7, "networks", float("inf"), None, False, "found so", "print('the lines')")
    row = Row(one.name, one.sentence, one.source, failed, 0.125)
    assert Row.of(json.loads(json.dumps(row.record()))) == row


def test_models_and_own_algorithms_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a declaration alone"):
        check(smisym.compile(Architecture(2, (Attention(),))), only="bits", store=tmp_path)


def test_the_same_command_resumes(network: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "smisym", "check", network, "--only", "bits", "--json", "--state", str(tmp_path)]
    first, again = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == again


def interrupted(network: str, *more: str) -> tuple[str, int, int]:
    """Ctrl-C once the progress says that something was tried: stdout, and how many it says were tried, in the end and
    before."""
    command = [sys.executable, "-m", "smisym", "check", network, "--thorough", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    said = re.search(r"check (\d+)/(\d+)", line)
    assert said, line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    ended = re.search(rf"interrupted; (\d+) of {said[2]} properties were tried", err)
    assert ended, err
    return out, int(ended[1]), int(said[1])


def test_what_was_tried_before_ctrl_c_is_shown(network: str) -> None:
    """Once the progress says that something was tried: the table of it on stdout, and how far it came on stderr."""
    out, ended, before = interrupted(network)
    rows = [line for line in out.splitlines() if re.search(r"(holds|left out) *$", line)]
    assert len(rows) == ended >= before > 0


def test_what_was_tried_before_ctrl_c_is_printed_as_json(network: str) -> None:
    """The document of the whole, of the properties that were tried, which says that it is a part."""
    out, ended, before = interrupted(network, "--json")
    found = json.loads(out)
    assert found["interrupted"] and found["ok"] is None and found["command"] == "check"
    assert len(found["properties"]) == ended >= before > 0
    assert {row["verdict"] for row in found["properties"]} <= {"holds", "left out"}
