"""Work in other processes: Python's interpreter lock leaves all threads of one process about one core.

A function is sent once, by value, with all that it closes over, and is called there any number of times.  What it
returns does not depend on where it runs; whoever asks must be ready to run it at home, where the others are not ready
yet, cannot be given the function, died, or failed.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from smisym.base import patience
from smisym.base.linear_algebra import one_thread

# Seconds of work at home after which the others are begun: to be ready takes them one or two.
WORTH = 2.0
# Seconds without work after which the others end.
_IDLE = 60
# Functions that each of them remembers.
_KEPT = 8
# Seconds between two looks at whether anybody still wants the answer.
_LOOK = 0.1
# One thread of linear algebra each, as at home: the same bits.
_ALONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


# What a terminal or a batch system sends to a whole group is for the process that asks alone: it ends the others.
_FOR_ONE = {signal.SIGINT, signal.SIGTERM}

_worth = [WORTH]


@contextlib.contextmanager
def begun_after(seconds: float) -> Iterator[None]:
    """Inside, other processes are begun after so many seconds of work at home: at once for 0, never for infinity.

    It holds for all threads of this process.  For those who may begin no processes, and who know that work is long.
    """
    before, _worth[0] = _worth[0], seconds
    try:
        yield
    finally:
        _worth[0] = before


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Processes and threads that are begun inside keep what is for one process alone pending, from their first moment.

    So does what ends them: a thread begun here.  What this thread is sent meanwhile it gets at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_ONE)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Sent:
    """A function as bytes; ``blob`` is None where it cannot be sent, as when it closes over a lock."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.blob: bytes | None = None
        with contextlib.suppress(Exception):  # whatever a function of the user's may hold
            self.blob = importlib.import_module("cloudpickle").dumps(function)
        self.digest = hashlib.sha256(self.blob or b"").digest()


class Pool:
    """A number of other processes, begun when the work done at home shows that they are worth it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = threading.Lock()
        self._executor: Any = None
        self._begun: Any = None  # the future of the first call, which tells when they are ready
        self._spent = 0.0
        self._lost = workers < 2

    def worked(self, seconds: float) -> None:
        """Count work that was done at home; begin the others where there was enough of it."""
        with self._lock:
            self._spent += seconds
            if self._spent >= _worth[0] and not self._lost and self._executor is None:
                self._begin()

    def begin(self, sent: Sent | None = None) -> None:
        """Begin the others now, for work that is known to be long; copies of this process know ``sent`` already."""
        if math.isfinite(_worth[0]):
            if sent is not None and sent.blob is not None:
                _functions[sent.digest] = sent.function
            self.worked(_worth[0])
            _functions.clear()  # here nobody looks there

    def _begin(self) -> None:
        try:
            own = _copies(self.workers) if _may_be_copied() else _others(self.workers)
            with _undisturbed(), warnings.catch_warnings():
                # Python 3.12 and later count the threads of linear algebra, which sees to copies itself.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._executor, self._begun = own, own.submit(_settle)
        except Exception:  # no memory, no room for processes, no semaphores: everything is done at home
            self._lost = True
            return
        _ALL.add(self)

    @property
    def begun(self) -> bool:
        """Whether they were asked to begin."""
        return self._executor is not None

    @property
    def ready(self) -> bool:
        """Whether they can be called."""
        first = self._begun
        return first is not None and not self._lost and first.done()

    def call(self, sent: Sent, *args: Any) -> list[Any]:
        """[function(*args)], made elsewhere; [] where it must be made at home.

        Raises what :func:`smisym.base.patience.check` raises, in which case nobody waits for the answer any more; who
        gets what is no Exception ends this pool.
        """
        executor = self._executor
        if executor is None or not self.ready or sent.blob is None:
            return []
        future: Any = None
        while True:
            try:
                if future is None:
                    with _undisturbed():  # those that were idle for long are begun anew
                        future = executor.submit(_call, sent.digest, sent.blob, args)
                answer: list[Any]
                answer, seconds = future.result(timeout=_LOOK)
                patience.spent_elsewhere(seconds)
                return answer
            except TimeoutError:
                try:
                    patience.check()
                except Exception:
                    future.cancel()
                    raise
            except Exception:
                patience.check()  # they may have been ended because nobody waits
                # Else one was killed, or the answer could not be read; or they were ended for others.
                self._lost = self._lost or self._executor is executor
                return []

    def end(self) -> None:
        """End the others at once, whatever they are doing; :meth:`worked` may begin them anew."""
        with self._lock:
            executor, self._executor, self._begun = self._executor, None, None
            self._spent = 0.0
            _ALL.discard(self)
        if executor is not None:
            _forget_cancelled(executor)
            if isinstance(executor, ProcessPoolExecutor):
                for process in list((executor._processes or {}).values()):
                    process.kill()
                executor.shutdown(wait=True, cancel_futures=True)
            else:
                executor.shutdown(wait=True, kill_workers=True)


def _may_be_copied() -> bool:
    """Whether others may begin as copies of this process, which know at once all that it knows: it has one thread, so
    that no lock is held by one that is not copied, and none of the packages that have threads of their own."""
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    return sys.platform == "linux" and alone and not {"jax", "torch"} & sys.modules.keys()


def _copies(workers: int) -> ProcessPoolExecutor:
    """They begin, all of them, when they are first called."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), initializer=_settle_copy)


def _others(workers: int) -> Any:
    """Processes that begin from nothing, when they are called, and end where they are idle for long."""
    loky = _loky()
    # The trackers of shared resources, as they begin, would make this thread listen again.
    for tracker in ("multiprocessing.resource_tracker", "loky.backend.resource_tracker"):
        importlib.import_module(tracker).ensure_running()
    with _undisturbed():
        return loky.ProcessPoolExecutor(workers, timeout=_IDLE, initializer=_settle, env=_ALONE)


def _forget_cancelled(executor: Any) -> None:
    """loky tells all that waits that it will not be done, and stumbles over what was cancelled meanwhile."""
    waiting = getattr(executor, "_pending_work_items", {})
    for number, item in list(waiting.items()):
        if item.future.cancelled():
            waiting.pop(number, None)


@contextlib.contextmanager
def executor(workers: int) -> Iterator[Any]:
    """A concurrent.futures executor of so many other processes, each with one thread, ended with the block.

    They leave interrupts to this process, and end where it is killed.
    """
    own = _others(workers)
    try:
        yield own
    finally:
        _forget_cancelled(own)
        own.shutdown(wait=True, kill_workers=True)


def alone(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args) in one thread; where another process of :func:`executor` makes it, until the asker is killed."""
    if not _ASKER[0]:
        with one_thread():
            return function(*args)
    with one_thread(), patience.asking(_check_asker):
        return function(*args)


_POOLS: dict[int, Pool] = {}
_ALL: set[Pool] = set()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _loky() -> Any:
    """The package.  A process that has come to hold much memory, as of integrals that it remembers, ends after its work
    and another takes its place: nothing that a user must hear of."""
    found = importlib.import_module("loky")
    warnings.filterwarnings("ignore", "A worker was restarted while some jobs", UserWarning, r"loky\.")
    return found


def pool(workers: int) -> Pool:
    """The processes that everybody who asks for so many workers shares."""
    return _POOLS.setdefault(workers, Pool(workers))


@atexit.register
def end_all() -> None:
    """End all of them at once; as this process ends they end by themselves, but for work that nobody waits for."""
    for one in list(_ALL):
        one.end()


# ---- there ---------------------------------------------------------------------------------------

_functions: dict[bytes, Callable[..., Any]] = {}
_ASKER = [0]


def _settle() -> None:
    """As :func:`_undisturbed`, where that is not to be had."""
    _ASKER[0] = os.getppid()
    for number in _FOR_ONE:
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)


def _settle_copy() -> None:
    """The same in a copy, which hears of the end of the one that asks by looking alone."""
    _settle()
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while True:
        time.sleep(1.0)
        _check_asker()


def _call(digest: bytes, blob: bytes, args: tuple[Any, ...]) -> tuple[list[Any], float]:
    """[what the function returns], or [] where it raised: made again at home, it raises there; and seconds of the
    processor."""
    begun = time.process_time()
    try:
        function = _functions.get(digest)
        if function is None:
            while len(_functions) >= _KEPT:
                _functions.pop(next(iter(_functions)))
            function = _functions[digest] = importlib.import_module("cloudpickle").loads(blob)
        with one_thread(), patience.asking(_check_asker):
            return [function(*args)], time.process_time() - begun
    except Exception:
        return [], time.process_time() - begun


def _check_asker() -> None:
    """End this process where the one that asks was killed: nobody ends it, and what it makes nobody gets."""
    if os.getppid() != _ASKER[0]:
        os._exit(1)
