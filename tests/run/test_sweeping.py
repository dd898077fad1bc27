"""Sweeps and analyses from Python; what ``smisym`` shows; summaries."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, InputError, Solution
from smisym.base.solution import Result, short
from smisym.report.outlining import outline

SMALL: dict[str, Any] = {"samples": 256, "scrambles": 2}


def with_noise(noise: float) -> Architecture:
    return Architecture(2, (Attention(),), noise=noise)


def test_a_sweep_resumes_and_tells_what_is_done(tmp_path: Path) -> None:
    seen: list[Any] = []
    how: dict[str, Any] = {"stages": 1, "quadrature": False, "store": tmp_path / "state", **SMALL}
    found = smisym.sweep(with_noise, (0.0, 0.05), progress=seen.append, **how)
    assert [record["value"] for record in found] == [0.0, 0.05]
    alphas = [record["thresholds"][0]["alpha"] for record in found]
    assert alphas[0] < alphas[1], "noise hides"
    assert found[1]["architecture"] == with_noise(0.05).canonical()
    assert [record for record in seen if "value" in record] == found
    assert [record for record in seen if "evaluations" in record]
    seen.clear()
    assert smisym.sweep(with_noise, [0.05], progress=seen.append, **how) == found[1:]
    assert not [record for record in seen if "evaluations" in record], "computed again"
    json.dumps(found)


def test_a_sweep_of_curves(tmp_path: Path) -> None:
    model = smisym.compile(with_noise(0.0))
    (record,) = smisym.sweep(lambda _: model, ["one"], [0.1, 0.3], **SMALL)
    assert [point["alpha"] for point in record["points"]] == [0.1, 0.3]


@pytest.mark.parametrize("what", ["thresholds", [0.1, 0.3]])
def test_the_executor_changes_no_bit_of_a_sweep(tmp_path: Path, what: Any) -> None:
    how: dict[str, Any] = {**SMALL, **({"stages": 1, "quadrature": False} if what == "thresholds" else {})}
    alone = smisym.sweep(with_noise, [0.05, 0.0], what, **how)
    seen: list[Any] = []
    with ThreadPoolExecutor(2) as threads:
        sent = smisym.sweep(
            with_noise, [0.05, 0.0], what, executor=threads, store=tmp_path, progress=seen.append, **how
        )
    assert sent == alone
    assert sorted(record["value"] for record in seen) == [0.0, 0.05]
    # What was finished is kept: workers are not needed any more.
    with ThreadPoolExecutor(1) as none:
        none.shutdown()
        assert smisym.sweep(with_noise, [0.05, 0.0], what, executor=none, store=tmp_path, **how) == alone


BAD: dict[str, Any] = {
    "executor": lambda: smisym.sweep(with_noise, [1.0], executor=3),  # type: ignore[arg-type]
    "make": lambda: smisym.sweep(3, [1.0]),
    "values": lambda: smisym.sweep(with_noise, 3.0),
    "what": lambda: smisym.sweep(with_noise, [0.0], "threshold"),
    "alpha": lambda: smisym.sweep(with_noise, [0.0], [-1.0]),
    "keyword": lambda: smisym.sweep(with_noise, [0.0], sample=16),
    "progress": lambda: smisym.sweep(with_noise, [0.0], progress=3, **SMALL),
}


@pytest.mark.parametrize(("what", "bad"), BAD.items(), ids=BAD.keys())
def test_bad_sweeps(what: str, bad: Any) -> None:
    with pytest.raises(InputError, match="To fix") as caught:
        bad()
    assert caught.value.what == what


def test_a_model_cannot_be_sent() -> None:
    model = smisym.compile(with_noise(0.0))
    with ThreadPoolExecutor(1) as threads, pytest.raises(InputError, match="leave executor out"):
        smisym.sweep(lambda _: model, [1.0], executor=threads)


def test_keywords_of_the_other_kind_are_refused() -> None:
    with pytest.raises(InputError, match="keyword: given 'stages'"):
        smisym.sweep(with_noise, [0.0], [0.1], stages=1)
    with pytest.raises(InputError, match=r"keyword: given 'sampels'.* write samples"):
        smisym.analyze(with_noise(0.0), "out", sampels=16)


def test_analyze_from_python(tmp_path: Path) -> None:
    done = smisym.analyze(
        with_noise(0.0), tmp_path / "out", alphas=[0.3, 0.0], dim=30, runs=1, iterations=5, damping=0.2, **SMALL
    )
    assert sorted(done["files"]) == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [point["alpha"] for point in done["points"]] == [0.0, 0.3]
    header = json.loads((tmp_path / "out" / "curve.json").read_text())
    assert header["settings"]["damping"] == 0.2 and header["settings"]["samples"] == 256
    for bad in ({"runs": -1}, {"dim": 1}, {"damping": 1.0}, {"alphas": [-1.0]}, {"iterations": 0}, {"dim": 10**9}):
        with pytest.raises(InputError, match="To fix"):
            smisym.analyze(with_noise(0.0), tmp_path / "bad", **bad)
    assert not (tmp_path / "bad").exists()


# --- the names


def test_names_are_public_and_nothing_else_shows() -> None:
    assert dir(smisym) == sorted(smisym.__all__)
    for name in smisym.__all__:
        assert not isinstance(getattr(smisym, name), ModuleType), name
    assert {"sweep", "analyze", "write_derivation", "curve_figure", "generate", "__version__"} <= set(dir(smisym))
    with pytest.raises(AttributeError, match="no attribute 'swepe'"):
        smisym.swepe  # noqa: B018


# --- summaries


def test_summaries_are_short_and_say_everything() -> None:
    solution = Solution(
        np.linspace(0, 1, 1000), Result.NOISY, statistical_error=np.full(1000, 0.25), degrees_of_freedom=7,
        deterministic_error=1e-6, checks={"residual": 1.234567e-9},
    )  # fmt: skip
    said = solution.summary()
    for word in ("array (1000,), from 0 to 1", "0.25", "7 degrees", "1e-06", "statistical_error_large", "1.2346e-09"):
        assert word in said
    assert "raise samples" in said
    asked = dataclasses.replace(solution, settings={"accuracy": 0.01})
    assert "raise most_samples" in asked.summary() and "raise samples" not in asked.summary()
    with pytest.raises(smisym.NotConverged, match="raise most_samples"):
        asked.raise_if_failed()
    assert len(repr(solution)) < 200 and "\n" not in repr(solution)
    data = smisym.generate(smisym.compile(with_noise(0.0)), 300, 1.0, np.random.default_rng(0))
    found = smisym.gamp(smisym.compile(with_noise(0.0)), data.X, data.y, W=data.W)
    assert "overlap [" in repr(found.value) and len(repr(found)) < 400


def test_what_is_large_shows_itself_in_a_line() -> None:
    model = smisym.compile(smisym.Architecture(2, (smisym.Attention(),) * 3))
    shown = [repr(one) for one in model.link.interfaces]
    assert len(shown) == 2 and all("of" in text and "bounded" in text and len(text) < 120 for text in shown), shown
    one = smisym.compile(smisym.Architecture(2, (smisym.Attention(),)))
    y = one.channel.sample(np.random.default_rng(0).standard_normal((5, 1, 2)), np.random.default_rng(1))
    moments = one.channel.moments(y, np.zeros((5, 1, 2)), np.eye(1))
    assert repr(moments).startswith("<Moments: 5 samples of 1 x 2 fields")
    assert "success, largest error" in repr(moments) and len(repr(moments)) < 120
    titles = [section.title for section in outline(model.derivation)]
    assert len(set(titles)) == len(titles) and "Parts of the link function" in titles


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 / 3, "0.33333"), (True, "True"), (None, "None"), ("a", "a"), (np.float64(2), "2"),
        (Result.NOISY, Result.NOISY.value),
        (np.eye(2), "[[1, 0], [0, 1]]"), ({"a": 1.0}, "{a: 1}"), (tuple(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        (np.zeros((0, 3)), "[]"),
    ],
)  # fmt: skip
def test_short(value: Any, text: str) -> None:
    assert short(value) == text


def test_an_accuracy_reaches_everything_that_is_analysed(tmp_path: Path) -> None:
    """Of thresholds and overlaps alike; where there is one of samples as well, that is refused."""
    network = smisym.Architecture(2, (smisym.Attention(),))
    done = smisym.analyze(network, tmp_path / "files", alphas=[0.3], runs=0, accuracy=0.02)
    errors = [threshold["error"] for threshold in done["thresholds"]]
    assert len(errors) == 3
    assert max(errors) <= 0.02
    (point,) = done["points"]
    assert np.max(np.add(point["Q_error"], point["Q_deterministic_error"])) <= 0.02
    assert json.loads((tmp_path / "files" / "thresholds.json").read_text())["settings"]["accuracy"] == 0.02
    with pytest.raises(smisym.InputError, match="accuracy"):
        smisym.analyze(network, tmp_path / "files", accuracy=0.02, samples=512)
