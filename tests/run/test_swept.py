"""What a sweep returns is a list that shows itself, and is a table and a figure."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import smisym
from smisym.base.errors import InputError
from smisym.run.swept import Sweep


def threshold(kind: str, alpha: float | None, name: str) -> dict[str, Any]:
    return {"kind": kind, "alpha": alpha, "error": 1e-3, "names": [name], "layers": [1], "samples": None}


def thresholds() -> Sweep:
    """Two values, of the second of which a weak threshold is missing and the result no success."""
    first = [threshold("weak", 0.2, "z1"), threshold("weak", 0.7, "z2"), threshold("perfect_amp", 1.0, "z1")]
    second = [threshold("weak", 0.4, "z1"), threshold("hard", None, "z2"), threshold("perfect_amp", None, "z1")]
    return Sweep(
        [
            {"value": 0.5, "labels": ["z1", "z2"], "thresholds": first, "result": "success"},
            {"value": 1.5, "labels": ["z1", "z2"], "thresholds": second, "result": "statistical_error_large"},
        ]
    )


def curves() -> Sweep:
    """A model of one row, then one of two."""
    made = []
    for rows in (1, 2):
        eye = np.eye(rows)
        point = {"Q": (0.5 * eye).tolist(), "Q_error": (0.1 * eye).tolist()}
        point["Q_deterministic_error"] = [[None] * rows] * rows
        point |= dict.fromkeys(("bayes_error", "plug_in_error"), 0.1) | {"free_entropy": None, "unbounded": "+inf"}
        point |= {f"{name}_stderr": None for name in ("bayes_error", "plug_in_error", "free_entropy")}
        points = [{"alpha": alpha, "samples": 8, "result": "success", **point} for alpha in (0.1, 0.2)]
        made.append({"value": f"{rows} rows", "labels": [f"z{n + 1}" for n in range(rows)], "points": points})
    return Sweep(made)


def test_it_is_a_list() -> None:
    found = thresholds()
    assert isinstance(found, list) and found == list(found) and json.loads(json.dumps(found)) == found
    assert repr(found) == "<Sweep: thresholds at 2 values (0.5, 1.5); 1 of 2 a success>"
    assert repr(curves()) == "<Sweep: curves at 2 values (1 rows, 2 rows); success>"


def test_it_shows_itself() -> None:
    text = "".join(ET.fromstring(thresholds()._repr_html_()).itertext())
    assert "0.2000(10), 0.7000(10)" in text and "∞" in text and "raise samples" in text and "value" in text
    assert "0.50(10), 0.50(10)" in "".join(ET.fromstring(curves()._repr_html_()).itertext())
    ET.fromstring(Sweep()._repr_html_())


def test_it_is_a_table() -> None:
    table = thresholds().to_dataframe()
    assert table["value"].tolist() == [0.5] * 3 + [1.5] * 3 and table["alpha"].tolist()[3:] == [0.4, np.inf, np.inf]
    assert table["rows"].tolist()[:2] == ["z1", "z2"] and set(table["result"]) == {"success", "statistical_error_large"}
    table = curves().to_dataframe()
    assert len(table) == 2 * 1 + 2 * 4
    assert table["overlap"].tolist() == [0.5] * 2 + [0.5, 0.0, 0.0, 0.5] * 2
    assert table["row_"].tolist()[2:6] == ["z1", "z2", "z1", "z2"] and table["deterministic_error"].isna().all()
    assert set(table["free_entropy"]) == {np.inf} and table["bayes_error_stderr"].isna().all()
    assert curves().to_xarray()["overlap"].dims == ("line",) and Sweep().to_dataframe().empty


def test_thresholds_are_drawn_against_the_value() -> None:
    figure = Figure()
    FigureCanvasAgg(figure)
    axes: Axes = figure.subplots()
    assert thresholds().plot(axes) is axes
    first = next(one for one in axes.lines if len(one.get_xdata()) == 2)
    assert first.get_xydata().tolist() == [[0.5, 0.2], [1.5, 0.4]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["z1", "z2", "perfect recovery is reached"]
    with pytest.raises(InputError, match="curve_figure"):
        curves().plot(axes)
    with pytest.raises(InputError, match="finite"):
        Sweep().plot(axes)


def test_a_sweep_returns_one() -> None:
    found = smisym.sweep(
        lambda noise: smisym.SMI(("z1*z2",), 2, noise=noise), [0.1, 0.5], [0.5], samples=32, scrambles=2
    )
    assert isinstance(found, Sweep) and found[0]["labels"] == ["z1", "z2"]
    assert found.to_dataframe()["value"].tolist() == [0.1] * 4 + [0.5] * 4
