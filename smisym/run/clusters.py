"""A Dask cluster that is already running, as an executor (``pip install 'smisym[dask]'``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from smisym.base.errors import InputError, Words
from smisym.base.extras import needed

# Seconds in which a scheduler must answer; SMISYM_DASK_TIMEOUT chooses others.
_PATIENCE = 20.0


@contextmanager
def on_cluster(address: str | None) -> Iterator[Executor | None]:
    """The executor of the scheduler at an address such as ``tcp://host:8786``; None where there is no address.

    Every worker needs this version of smisym.  Work of a worker that dies is given to another.  Raises InputError where
    the package is not installed, nobody answers, or a worker runs another version.
    """
    if address is None:
        yield None
        return
    distributed = needed("distributed", "dask")
    timeout = float(os.environ.get("SMISYM_DASK_TIMEOUT", _PATIENCE))
    try:
        client = distributed.Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        allowed = "the address of a Dask cluster that answers"
        fix = "start one with 'dask scheduler', and write what it prints, for example tcp://127.0.0.1:8786"
        raise InputError("scheduler", Words(f"{address} ({error})"[:200]), allowed, fix) from None
    try:
        _check_versions(client, address)
        yield client.get_executor(pure=False)
    finally:
        client.close()


def _check_versions(client: object, address: str) -> None:
    found: dict[str, str] = client.run(_version)  # type: ignore[attr-defined]
    own = _version()
    others = {worker: version for worker, version in found.items() if version != own}
    if others:
        worker, version = next(iter(others.items()))
        given = Words(f"{worker} of {address} with smisym {version}")
        raise InputError("scheduler", given, f"workers with smisym {own}", "install the same version on all of them")


def _version() -> str:
    from smisym.declare.io import package_version

    return package_version()
