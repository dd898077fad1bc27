"""Tasks that do not depend on one another, one after the other or on any executor of concurrent.futures.

A task is a function of this package and plain arguments, so that it can be sent; what it returns does not depend on
where it is made.  Results come in the order of the tasks, and each is told as soon as it is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from concurrent.futures import CancelledError as Cancelled
from typing import Any

from smisym.base import processes
from smisym.base.edge import check_count
from smisym.base.errors import InputError, SmisymError, Words
from smisym.declare.io import Store

Arguments = tuple[Any, ...]


def check_executor(given: object) -> None:
    """InputError for what has no ``submit`` as the executors of concurrent.futures have it."""
    if given is not None and not callable(getattr(given, "submit", None)):
        fix = "pass for example concurrent.futures.ProcessPoolExecutor(), or Client(address).get_executor() of Dask"
        raise InputError("executor", given, "a concurrent.futures.Executor, or None", fix)


@contextlib.contextmanager
def running_on(executor: Executor | None, workers: int | None, tasks: int) -> Iterator[Executor | None]:
    """The executor that was given, or processes of our own where several tasks and workers make them worth it."""
    check_executor(executor)
    count = processes.cores() if workers is None else check_count("workers", workers, 1, "1 keeps all in one process")
    count = min(count, tasks)
    if executor is not None or count < 2:
        yield executor
        return
    with processes.executor(count) as own:
        yield own


def done_by(
    executor: Executor | None,
    function: Callable[..., Any],
    tasks: Sequence[Arguments],
    told: Callable[[int, Any], object],
) -> list[Any]:
    """[function(*task) for task in tasks]; ``told`` is called with the number of each and its result, as they come.

    What a task raises is raised here, and what has not begun by then is cancelled; so does an interrupt.
    Raises SmisymError where the executor loses its workers.
    """
    if executor is None:
        done = []
        for number, task in enumerate(tasks):
            done.append(processes.alone(function, *task))
            told(number, done[-1])
        return done
    futures: dict[Future[Any], int] = {}
    results: dict[int, Any] = {}
    try:
        for number, task in enumerate(tasks):
            futures[executor.submit(processes.alone, function, *task)] = number
        for future in as_completed(futures):
            number = futures[future]
            results[number] = future.result()
            told(number, results[number])
    except (BrokenExecutor, Cancelled) as error:
        raise _lost(error, len(tasks) - len(results)) from error
    finally:
        for future in futures:
            future.cancel()
    return [results[number] for number in range(len(tasks))]


# Many parameters: what is done and kept, where, and who is told.
def resumed_by(
    executor: Executor | None,
    keep: Store | None,
    function: Callable[..., dict[str, Any]],
    tasks: Sequence[tuple[str, Arguments]],
    valid: Callable[[Any], object],
    told: Callable[[int, dict[str, Any]], object],
) -> None:
    """As :func:`done_by`, of tasks with the names by which what they return is kept: what is kept already, and is
    ``valid``, is told first, and the others are kept as they come."""
    left = []
    for number, (name, _) in enumerate(tasks):
        kept = None if keep is None else keep.get(name, valid)
        if kept is None:
            left.append(number)
        else:
            told(number, kept)

    def done(place: int, found: dict[str, Any]) -> None:
        number = left[place]
        told(number, found if keep is None else keep.put(tasks[number][0], found))

    done_by(executor, function, [tasks[number][1] for number in left], done)


def _lost(error: Exception, left: int) -> SmisymError:
    given = Words(f"it lost its workers with {left} tasks to do ({type(error).__name__})")
    fix = "run the same again with the same store, in which what was finished is kept; give workers more memory"
    return InputError("executor", given, "one whose workers stay alive", fix)
