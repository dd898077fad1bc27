"""Before numpy is loaded: one thread of linear algebra a process, for matrices are small and processes several.

Single cases that take long are listed in slow.txt; whole tests are marked where they stand.
Faults are planted, and seconds are shared, in the process of the test: no other ones are begun unless asked for.
"""

import gc
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

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

LINES = (Path(__file__).parent / "slow.txt").read_text().splitlines()
# What shares documents, runs of commands, or the compiled rows of the table of cases.
SHARING = {"test_documents.py", "test_cli.py", "test_families.py", "test_checking.py", "test_programs.py"}
SHARING |= {"test_expanding.py", "test_jax.py", "test_every_row.py", "test_mapping.py"}
LISTED = [line for line in LINES if line and not line.startswith("#")]
SLOW = set(LISTED)
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
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what slow.txt lists; a line that names no case of a test that is there, or is there twice, is an error."""
    if twice := sorted(line for line in SLOW if LISTED.count(line) > 1):
        raise pytest.UsageError(f"slow.txt lists {twice[0]} twice. To fix: remove one of the lines.")
    # Workers begin with halves of what is collected and take from the ends of one another's: what shares most comes
    # first, so that one worker has all of it.
    items.sort(key=lambda item: item.path.name not in SHARING)
    collected = {f"{item.path.name}::{item.nodeid.partition('::')[2]}": item for item in items}
    for line in SLOW & collected.keys():
        collected[line].add_marker(pytest.mark.slow)
    for item in items:
        chosen = FAST & {item.path.name, item.path.parent.name} and item.name.split("[")[0] not in LONGER
        if chosen and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.fast)
    tests = {name.split("[")[0] for name in collected}
    stale = sorted(line for line in SLOW - collected.keys() if line.split("[")[0] in tests)
    # Asked for one case, pytest collects no other.
    whole = [line for line in stale if sum(name.startswith(line.split("[")[0] + "[") for name in collected) > 1]
    if whole:
        raise pytest.UsageError(f"slow.txt lists {whole[0]}, which is no test. To fix: remove or correct the line.")
