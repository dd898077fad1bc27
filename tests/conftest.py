"""Before numpy is loaded: one thread of linear algebra a process, for matrices are small and processes several.

Single cases that take very long are listed in slow.txt; whole tests are marked where they stand.  Those in long.txt
take turns where all tests are asked for: each run has a part of them, told by the name of the commit.
Faults are planted, and seconds are shared, in the process of the test: no other ones are begun unless asked for.
"""

import gc
import math
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Every chart in the table of cases would be compiled: tests/kernels asks for numba, and holds it against numpy.
os.environ.setdefault("SMISYM_BACKEND", "numpy")

# Programs that tests begin, a hundred, would each read the source anew where nothing may be written beside it.
BYTECODE = None
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in os.environ:
    BYTECODE = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="smisym-bytecode-")

from smisym.base import processes  # noqa: E402

# A shell that starts something in the background has it ignore Ctrl-C, and so do the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
# Runs of which the first has the cases of long.txt number 1, 1 + TURNS, 1 + 2 TURNS and so on, from the longest on.
TURNS = 9
# What shares documents, runs of commands, or the compiled rows of the table of cases.
SHARING = {"test_documents.py", "test_cli.py", "test_families.py", "test_checking.py", "test_programs.py"}
SHARING |= {"test_expanding.py", "test_jax.py", "test_every_row.py", "test_mapping.py"}


def listed(name: str) -> list[str]:
    """Cases of a list in this folder, in their order."""
    lines = [line for line in (HERE / name).read_text().splitlines() if line and not line.startswith("#")]
    if twice := sorted(line for line in set(lines) if lines.count(line) > 1):
        raise pytest.UsageError(f"{name} lists {twice[0]} twice. To fix: remove one of the lines.")
    return lines


SLOW, LONG = listed("slow.txt"), listed("long.txt")
TURN = pytest.StashKey[str]()
# How a run of all tests is told from one of some: no path, and the marks that pyproject.toml asks for.
ALL_TESTS, USUAL = pytest.Config.ArgsSource.TESTPATHS, "not slow"
# Objects of each age that are looked through for cycles: models stay for all tests, and each look takes them all in.
RARELY = (100_000, 20, 50)
# What is run while working: declarations, links, priors, documents, and the house itself.
FAST = {"declare", "link", "prior", "report", "test_imports.py", "test_no_patches.py", "test_size.py"}
# Of these, what takes more than ten seconds.
LONGER = {
    "test_the_network_is_the_link_at_its_fields",
    "test_the_log_partition_is_a_density",
    "test_a_prior_from_outside_is_the_same_model_with_rescaled_fields",
    "test_a_continuous_link_without_a_chart_is_solved_numerically_and_says_what_to_supply",
    "test_another_process_and_the_users_settings_change_nothing",
    "test_what_the_output_never_sees_is_never_learned",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    which = f"which of the {TURNS} turns of long.txt to run, or all; else the commit's in a run of all tests"
    parser.addoption("--turn", choices=[*map(str, range(1, TURNS + 1)), "all"], help=which)


def pytest_configure(config: pytest.Config) -> None:
    """Whose turn it is: workers are told, for they do not see what was asked for."""
    told = getattr(config, "workerinput", {}).get("turn") or config.getoption("turn")
    chosen = config.args_source != ALL_TESTS or config.getoption("markexpr") != USUAL or config.getoption("keyword")
    config.stash[TURN] = told or ("all" if chosen else _by_commit())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["turn"] = node.config.stash[TURN]


def pytest_report_header(config: pytest.Config) -> str:
    turn = config.stash[TURN]
    one = f"turn {turn} of {TURNS} of the {len(LONG)} cases of tests/long.txt (--turn all: every one of them)"
    return "every case of tests/long.txt" if turn == "all" else one


def _by_commit() -> str:
    """By the name of the commit, which a clone without history has as well."""
    asked = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    named = subprocess.run(asked, capture_output=True, text=True, check=False) if shutil.which("git") else None
    # Not a repository: an archive of the source.
    return str(int(named.stdout, 16) % TURNS + 1) if named is not None and named.returncode == 0 else "1"


def pytest_unconfigure() -> None:
    """Only who made the folder removes it: workers find it in their environment."""
    if BYTECODE:
        shutil.rmtree(BYTECODE, ignore_errors=True)


def pytest_collection_finish() -> None:
    """What is there now, tests and modules by the hundred thousand, stays to the end: nobody looks through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)


@pytest.fixture(scope="session", autouse=True)
def at_home() -> Iterator[None]:
    with processes.begun_after(math.inf):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what slow.txt lists, and leaves out what long.txt has for other turns.

    A line that names no case of a test that is there is an error.
    """
    # Workers begin with halves of what is collected and take from the ends of one another's: what shares most comes
    # first, so that one worker has all of it.
    items.sort(key=lambda item: item.path.name not in SHARING)
    collected = {f"{item.path.name}::{item.nodeid.partition('::')[2]}": item for item in items}
    for line in collected.keys() & SLOW:
        collected[line].add_marker(pytest.mark.slow)
    for item in items:
        chosen = FAST & {item.path.name, item.path.parent.name} and item.name.split("[")[0] not in LONGER
        if chosen and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.fast)
    for name, lines in (("slow.txt", SLOW), ("long.txt", LONG)):
        _all_there(name, lines, collected)
    turn = config.stash[TURN]
    if turn != "all":
        others = {line for k, line in enumerate(LONG) if k % TURNS != int(turn) - 1} - set(SLOW)
        left_out = {collected[line] for line in collected.keys() & others}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _all_there(name: str, lines: list[str], collected: Collection[str]) -> None:
    tests = {case.split("[")[0] for case in collected}
    stale = sorted(line for line in lines if line not in collected and line.split("[")[0] in tests)
    # Asked for one case, pytest collects no other.
    whole = [line for line in stale if sum(case.startswith(line.split("[")[0] + "[") for case in collected) > 1]
    if whole:
        raise pytest.UsageError(f"{name} lists {whole[0]}, which is no test. To fix: remove or correct the line.")
