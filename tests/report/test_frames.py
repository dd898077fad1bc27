"""Results as tables of pandas and labelled arrays of xarray."""

from __future__ import annotations

import sys

import fake_solutions
import numpy as np
import pandas
import pytest

import smisym
from smisym.base.errors import InputError


def test_a_curve_is_a_tidy_table() -> None:
    curve = fake_solutions.curve()
    table = curve.to_dataframe()
    assert len(table) == 5 * 2 * 2
    assert list(table.columns)[:6] == ["alpha", "row", "row_", "overlap", "overlap_error", "deterministic_error"]
    assert {"result", "samples", "seed"} <= set(table.columns)
    one = table[(table["row"] == "layer 2") & (table["row_"] == "layer 2")]
    assert one["alpha"].to_numpy() == pytest.approx(curve.alphas)
    assert one["overlap"].tolist() == [s.value.Q[1, 1] for s in curve]
    assert one["overlap_error"].tolist() == [s.value.Q_error[1, 1] for s in curve]
    assert one["result"].tolist() == [s.result.value for s in curve]
    assert set(table["seed"]) == {3} and set(table["samples"]) == {64}
    assert table["overlap"].dtype == np.float64 and table["seed"].dtype == np.int64


def test_a_curve_is_labelled_arrays() -> None:
    curve = fake_solutions.curve()
    data = curve.to_xarray()
    assert dict(data.sizes) == {"alpha": 5, "row": 2, "row_": 2}
    assert data["overlap"].dims == ("alpha", "row", "row_")
    assert float(data["overlap"].sel(row="layer 1", row_="layer 1", alpha=0.4)) == 0.3
    assert data["alpha"].attrs == {"long_name": "samples per dimension", "units": "N / D"}
    assert data["overlap"].attrs["units"] == "1" and "truth" in data["overlap"].attrs["long_name"]
    assert data.attrs["seed"] == 3 and data.attrs["rtol"] == 1e-2
    assert np.isposinf(data["conjugate"].to_numpy()[:, 0, 0]).all()
    # The table is what xarray itself makes of it.
    ours = curve.to_dataframe().set_index(["alpha", "row", "row_"])
    theirs = data.to_dataframe()[ours.columns]
    pandas.testing.assert_frame_equal(ours, theirs, check_dtype=False)


def test_a_fixed_point_is_a_curve_of_one() -> None:
    point = fake_solutions.point(0.5)
    pandas.testing.assert_frame_equal(point.to_dataframe(), smisym.Curve([point]).to_dataframe())
    assert point.to_xarray().sizes["alpha"] == 1


def test_thresholds_are_a_line_each() -> None:
    solution = fake_solutions.thresholds()
    table = solution.to_dataframe()
    assert table["kind"].tolist() == ["weak", "hard"] and table["alpha"].tolist() == [0.1854779, np.inf]
    assert table["alpha_error"].tolist() == [1.8e-6, 0.0] and table["order"].tolist() == [-1, 4]
    assert table["rows"].tolist() == ["layer 2", "layer 1"] and "overlap_below" not in table
    data = solution.to_xarray()
    assert float(data["overlap_below"].sel(threshold=1, row="layer 2", row_="layer 2")) == 0.9
    assert data["subspace"].to_numpy()[0].tolist() == [[0, 0], [0, 1]]
    assert smisym.Solution(smisym.Thresholds(), solution.result).to_dataframe().empty


def test_gamp_is_a_line_a_step_and_pair_of_rows() -> None:
    table = fake_solutions.gamp().to_dataframe()
    assert len(table) == 4 * 2 * 2
    last = table[(table["step"] == 3) & (table["row"] == "layer 2") & (table["row_"] == "layer 2")]
    assert last["overlap"].item() == pytest.approx(0.9) and last["C_hat"].item() == pytest.approx(0.1)
    assert set(table["result"]) == {"max_steps"}
    data = fake_solutions.gamp(known=False).to_xarray()
    assert np.isnan(data["overlap"]).all() and data["cosine"].dims == ("step", "row")


def test_numbers_are_tables_too() -> None:
    assert fake_solutions.number().to_dataframe()["value"].tolist() == [-np.inf]
    table = fake_solutions.array().to_dataframe()
    assert table["value"].tolist() == [0, 1, 2, 3, 4, 5] and table["dim_1"].tolist() == [0, 1, 2] * 2
    with pytest.raises(InputError, match="solution"):
        smisym.Solution("text", smisym.Result.SUCCESS).to_dataframe()


def test_what_was_computed_beside_the_overlaps_has_its_columns() -> None:
    point = fake_solutions.point(0.5)
    beside = {"bayes_error": 0.1, "bayes_error_stderr": 0.01, "free_entropy": None, "unbounded": "-inf"}
    table = smisym.Curve([point], [beside]).to_dataframe()
    assert set(table["bayes_error"]) == {0.1} and set(table["bayes_error_stderr"]) == {0.01}
    assert set(table["free_entropy"]) == {-np.inf} and "plug_in_error" not in table


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_dataframe"), ("xarray", "to_xarray")])
def test_an_installation_without_the_extra_says_which(package: str, method: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'smisym\[tables\]'"):
        getattr(fake_solutions.curve(), method)()
