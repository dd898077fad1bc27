"""A running Dask cluster as an executor: the same bits, also where a worker is killed in the middle."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import smisym
from smisym import Architecture, Attention, InputError
from smisym.run.clusters import on_cluster

ONE = Architecture(2, (Attention(),))
QUICK: dict[str, Any] = {"follow": False, "stages": 1, "samples": 1024, "refine": 0}
VALUES = [0.5, 0.75, 1.0, 1.5, 2.0, 3.0]


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster:
            yield cluster


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_is_killed_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    alone = smisym.phase_diagram(ONE, {"beta": VALUES}, workers=1, **QUICK)
    finished: list[Any] = []

    def kill() -> None:
        while not finished:
            time.sleep(0.01)
        next(iter(cluster.workers.values())).process.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with on_cluster(cluster.scheduler_address) as executor:
        found = smisym.phase_diagram(
            ONE, {"beta": VALUES}, executor=executor, store=tmp_path, progress=finished.append, **QUICK
        )
    killer.join()
    assert found == alone
    assert len(finished) == len(VALUES)


def test_without_an_address_there_is_no_cluster() -> None:
    with on_cluster(None) as executor:
        assert executor is None


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", ""])
def test_an_address_where_nobody_answers_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("SMISYM_DASK_TIMEOUT", "0.5")
    with pytest.raises(InputError, match="scheduler"), on_cluster(address):
        pass
