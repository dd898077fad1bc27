"""Before numpy is loaded: one thread of linear algebra a process, for matrices are small and processes several.

Single cases that take long are listed in slow.txt; whole tests are marked where they stand.
Faults are planted, and seconds are shared, in the process of the test: no other ones are begun unless asked for.
"""

import math
import os
import signal
from pathlib import Path

import pytest

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from smisym import processes  # noqa: E402

processes.WORTH = math.inf

# A shell that starts something in the background has it ignore Ctrl-C, and so do the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LINES = (Path(__file__).parent / "slow.txt").read_text().splitlines()
SLOW = {line for line in LINES if line and not line.startswith("#")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what slow.txt lists; a line that names no case of a test that is there is an error."""
    collected = {item.nodeid.rsplit("/", 1)[-1]: item for item in items}
    for line in SLOW & collected.keys():
        collected[line].add_marker(pytest.mark.slow)
    tests = {name.split("[")[0] for name in collected}
    stale = sorted(line for line in SLOW - collected.keys() if line.split("[")[0] in tests)
    # Asked for one case, pytest collects no other.
    whole = [line for line in stale if sum(name.startswith(line.split("[")[0] + "[") for name in collected) > 1]
    if whole:
        raise pytest.UsageError(f"slow.txt lists {whole[0]}, which is no test. To fix: remove or correct the line.")
