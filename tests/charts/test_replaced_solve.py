"""A chart whose ``solve`` is replaced is what that says, whatever was compiled of the chart before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention
from smisym.charts import LevelSet
from smisym.model.channel import Channel
from smisym.posterior.level_set import OnLevelSet


def halved(model: smisym.Model) -> Channel:
    """A channel of the model's first sheet alone."""
    chart = model.level_set
    assert chart is not None

    def solve(free: Any, latent: Any, u: Any) -> smisym.Sheets:
        sheets = chart.solve(free, latent, u)
        return smisym.Sheets(sheets.solved[:-1], sheets.log_weight[:1])

    lost: LevelSet = dataclasses.replace(chart, solve=solve, branches=chart.branches - 1)
    assert chart.program is not None and lost.program is None
    return Channel(model.link, OnLevelSet(lost, model.tokens))


@pytest.fixture(params=["numpy", "numba"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "numba":
        pytest.importorskip("numba")
    monkeypatch.setenv("SMISYM_BACKEND", request.param)
    yield request.param


@pytest.mark.parametrize("first", [0, 1])
def test_neither_tells_of_the_other(first: int, backend: str) -> None:
    """Two layers on three tokens have loops; one sheet of two moves the mean."""
    model = smisym.compile(Architecture(2, (Attention(), Attention())))
    rng = np.random.default_rng(3)
    omega, V = 0.3 * rng.standard_normal((4, 2, 2)), np.diag([0.8, 0.5])
    y = model.observe(omega + np.sqrt([[0.8], [0.5]]) * rng.standard_normal(omega.shape))
    channels = [model.channel, halved(model)]
    found = [channels[k].moments(y, omega, V, rtol=1e-6).log_partition for k in ((0, 1) if first == 0 else (1, 0))]
    whole, half = found if first == 0 else found[::-1]
    assert (whole - half > 1e-3).all()
