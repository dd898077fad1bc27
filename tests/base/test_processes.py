"""Other processes: the same bits as at home, and nothing lost where they fail, die or are ended."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.base import patience, processes

T = TypeVar("T")
UNTIED = Architecture(2, (Attention(tied=False),))


def begun(made: processes.Pool) -> Iterator[processes.Pool]:
    """These other processes, ready, and ended afterwards."""
    with processes.begun_after(0.0):
        made.begin()
        until = time.monotonic() + 60
        while not made.ready and time.monotonic() < until:
            time.sleep(0.05)
        assert made.ready
        yield made
        made.end()


@pytest.fixture
def pool() -> Iterator[processes.Pool]:
    """Two other processes of one's own, ready."""
    yield from begun(processes.Pool(2))


@pytest.fixture
def shared() -> Iterator[processes.Pool]:
    """The two that maps share, ready."""
    yield from begun(processes.pool(2))


def twice(x: float) -> float:
    return 2 * x


def own_number() -> int:
    return os.getpid()


def fails() -> None:
    raise ValueError("as asked")


def burnt(seconds: float) -> float:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return seconds


def test_seconds_of_the_processor_are_those_of_all_processes(pool: processes.Pool) -> None:
    """One second is over after at most five calls of a quarter of one each, of which none is spent here."""
    sent, done = processes.Sent(burnt), 0

    def work() -> None:
        nonlocal done
        for _ in range(20):
            patience.check()
            assert pool.call(sent, 0.25) == [0.25]
            done += 1
            time.sleep(0.02)  # clocks are looked at a hundred times a second at most

    before = time.process_time()
    assert patience.within(1.0, work) is None
    assert 1 <= done <= 5 and time.process_time() - before < 0.9


def test_a_function_is_called_elsewhere(pool: processes.Pool) -> None:
    offset = 3.0
    assert pool.call(processes.Sent(lambda x: twice(x) + offset), 2.0) == [7.0]
    assert pool.call(processes.Sent(own_number)) not in ([], [os.getpid()])


def test_what_fails_there_is_left_to_home(pool: processes.Pool) -> None:
    assert pool.call(processes.Sent(fails)) == []
    assert pool.ready  # it was the function that failed
    lock = threading.Lock()
    closed_over = processes.Sent(lambda: lock.locked())
    assert closed_over.blob is None and pool.call(closed_over) == []


def test_a_process_that_dies_is_not_waited_for(pool: processes.Pool) -> None:
    assert pool.call(processes.Sent(lambda: os.kill(os.getpid(), signal.SIGKILL))) == []
    assert not pool.ready and pool.call(processes.Sent(own_number)) == []


def test_nobody_waits_longer_than_they_want_to(pool: processes.Pool) -> None:
    began = time.monotonic()

    def enough() -> None:
        if time.monotonic() > began + 0.3:
            raise TimeoutError("enough")

    with patience.asking(enough), pytest.raises(TimeoutError, match="enough"):
        pool.call(processes.Sent(time.sleep), 20)
    assert time.monotonic() < began + 10
    pool.end()
    assert time.monotonic() < began + 10  # ended in the middle of its sleep


def test_none_are_begun_where_they_are_not_worth_it() -> None:
    never, alone, later = processes.Pool(2), processes.Pool(1), processes.Pool(2)
    with processes.begun_after(math.inf):
        never.worked(1e9)
        never.begin()
    with processes.begun_after(0.0):
        alone.begin()
    with processes.begun_after(3.0):
        later.worked(2.9)
        assert not (never.ready or never.begun or alone.begun or later.begun)
        later.worked(0.2)
        assert later.begun
    later.end()


def test_the_map_has_the_same_bits_wherever_it_is_evaluated(shared: processes.Pool) -> None:
    model = smisym.compile(UNTIED)
    here = smisym.overlap_map(model, samples=512, workers=1)
    there = smisym.overlap_map(model, samples=512, workers=2)
    heard: list[float] = []
    there.on_evaluation = lambda record: heard.append(record["seconds"])
    calls = [s.value.overlaps for s in smisym.curve(there, [0.4])]
    assert heard and shared.ready
    for one, other in zip(calls, smisym.curve(here, [0.4]), strict=True):
        np.testing.assert_array_equal(one, other.value.overlaps)


def test_time_is_up_there_too(shared: processes.Pool) -> None:
    two_layers = smisym.compile(Architecture(2, (Attention(), Attention())))
    omap = smisym.overlap_map(two_layers, samples=2**19, workers=2, time_limit=1.0)
    began = time.monotonic()
    with pytest.raises(smisym.OutOfTime, match="time_limit=1"):
        omap(np.zeros((2, 2)))
    assert time.monotonic() < began + 20


SCRIPT = """
import os, smisym
from smisym import Architecture, Attention
from smisym.base import processes
omap = smisym.overlap_map(smisym.compile(Architecture(2, (Attention(), Attention()))), samples=2**15, workers=2)
def heard(record):
    if omap.pool.ready:
        os.write(1, b"ready\\n")  # at once: threads that print mix their lines
omap.on_evaluation = heard
with processes.begun_after(0.0):
    smisym.curve(omap, [0.1 * k for k in range(1, 12)])
"""


def test_who_waits_no_longer_is_asked_in_all_threads() -> None:
    """Threads of a map end with the seconds of who asked for it, which they spend themselves."""
    omap = smisym.OverlapMap(smisym.compile(UNTIED), samples=64, scrambles=2, workers=2)
    ended = []

    def work(scramble: int) -> None:
        try:
            end = time.process_time() + 20
            while time.process_time() < end:
                patience.check()
        finally:
            ended.append(scramble)

    before = time.process_time()
    assert patience.within(0.3, lambda: omap.each(work)) is None
    assert sorted(ended) == [0, 1] and time.process_time() - before < 5


CANCELLED = """import time
from smisym.base import processes

if __name__ == "__main__":
    with processes.executor(1) as executor:
        futures = [executor.submit(time.sleep, 60) for _ in range(12)]
        time.sleep(0.2)
        print(sum(future.cancel() for future in futures) >= 3)
    print(all(future.done() for future in futures))
"""


def test_tasks_that_were_cancelled_disturb_no_end() -> None:
    """More of them than processes: a thread of the executor would stumble over them, and say so."""
    run = subprocess.run([sys.executable, "-c", CANCELLED], capture_output=True, text=True, timeout=60, check=True)
    assert (run.stdout, run.stderr) == ("True\nTrue\n", "")


def test_ctrl_c_ends_all_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout is not None and run.stdout.readline() == "ready\n"
            time.sleep(0.5)
            began = time.monotonic()
            run.send_signal(signal.SIGINT)
            _, err = run.communicate(timeout=60)
            assert time.monotonic() < began + 15
        finally:
            run.kill()
    assert run.returncode != 0 and "KeyboardInterrupt" in err
    assert "leaked" not in err and "Exception ignored" not in err, err


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_what_a_whole_group_is_sent_is_for_one_process_alone(pool: processes.Pool, sent: signal.Signals) -> None:
    """The others go on; they are ended by the one that asks, whose threads that end them keep it pending too."""
    number = processes.Sent(own_number)
    (there,) = pool.call(number)
    os.kill(there, sent)
    time.sleep(0.2)
    os.kill(there, 0)  # it is there
    assert pool.call(processes.Sent(twice), 1.5) == [3.0]
    for thread in threading.enumerate():
        if thread.name == "ExecutorManagerThread" and os.path.exists("/proc/self/task"):
            with open(f"/proc/self/task/{thread.native_id}/status") as status:
                blocked = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))
            assert blocked >> (sent - 1) & 1


LONG = """
import os, pathlib, time
from smisym.base import patience, processes
pool = processes.pool(2)
pool.begin()
while not pool.ready:
    time.sleep(0.05)
def long():
    pathlib.Path(NAME).write_text(str(os.getpid()))
    while True:
        patience.check()
        time.sleep(0.05)
pool.call(processes.Sent(long))
"""


def test_what_nobody_can_get_any_more_is_not_made(tmp_path: Path) -> None:
    """The one that asks is killed, and can end nobody: the others end at the next piece of their work."""
    name = tmp_path / "number"
    with subprocess.Popen([sys.executable, "-c", LONG.replace("NAME", repr(str(name)))]) as run:
        try:
            there = int(eventually(lambda: name.exists() and name.read_text()))
        finally:
            run.kill()
    eventually(lambda: not running(there))


def eventually(what: Callable[[], T], seconds: float = 30.0) -> T:
    """What it gives as soon as that is true."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def running(number: int) -> bool:
    """Whether there is such a process; one that ended, and that nobody asked about, is a zombie where that is told."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{number}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


COPIED = """
import os, signal, threading, time
import numpy as np
import smisym
from smisym import Architecture, Attention
from smisym.base import processes

def cold(process):
    with open(f"/proc/{process}/cmdline", "rb") as stream:
        return stream.read() != own
with open("/proc/self/cmdline", "rb") as stream:
    own = stream.read()

model = smisym.compile(Architecture(2, (Attention(tied=False),)))
here, there = (smisym.overlap_map(model, samples=512, workers=workers) for workers in (1, 2))
with processes.begun_after(0.0):
    there.begin_elsewhere()
    assert there.pool.begun
    number = processes.Sent(os.getpid)
    while not (first := there.pool.call(number)):
        time.sleep(0.01)
    assert first != [os.getpid()] and not cold(first[0])
    Q = np.diag([0.3, 0.2])
    spent = []
    there.on_evaluation = lambda record: spent.append(record)
    for one, other in zip(here.evaluate(Q), there.evaluate(Q), strict=True):
        assert (one.E == other.E).all() and one.log_partition == other.log_partition
    assert spent
    began = time.monotonic()
    sleeping = threading.Thread(target=there.pool.call, args=(processes.Sent(time.sleep), 60))
    sleeping.start()
    time.sleep(0.3)
    there.pool.end()
    sleeping.join()
    assert time.monotonic() < began + 10

    # A thread may hold a lock that a copy would wait for for ever.
    waiting = threading.Event()
    beside = threading.Thread(target=waiting.wait)
    beside.start()
    other = processes.Pool(2)
    other.begin()
    while not (second := other.call(number)):
        time.sleep(0.05)
    assert cold(second[0])
    waiting.set()
    other.end()
    beside.join()

    lost = processes.Pool(2)
    lost.begin()
    while not lost.ready:
        time.sleep(0.01)
    assert lost.call(processes.Sent(lambda: os.kill(os.getpid(), signal.SIGKILL))) == []
    assert not lost.ready and lost.call(number) == []
print("done", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process begins as a copy")
def test_copies_of_a_process_of_one_thread_do_what_others_do() -> None:
    run = subprocess.run([sys.executable, "-c", COPIED], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and run.stdout == "done\n", run.stderr
    assert run.stderr == ""


IDLE = """
import os, threading, time
from smisym.base import processes
pool = processes.pool(2)
pool.begin()
numbers = set()
def number():
    time.sleep(0.2)
    return os.getpid()
sent = processes.Sent(number)
while len(numbers) < 2:
    asking = [threading.Thread(target=lambda: numbers.update(pool.call(sent))) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    time.sleep(0.05)
print(*numbers, flush=True)
time.sleep(600)
"""


def test_idle_ones_end_where_the_one_that_asks_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            there = [int(number) for number in run.stdout.readline().split()]
        finally:
            run.kill()
    assert len(there) == 2
    for number in there:
        eventually(lambda number=number: not running(number))  # type: ignore[misc]
