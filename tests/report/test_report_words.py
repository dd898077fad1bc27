"""Pages, figures and files of results that are not as usual: what they say then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fake_results
import numpy as np
import pytest

from smisym import Result, Solution
from smisym.base.derivation import Derivation, Formula, Step
from smisym.base.errors import InputError
from smisym.report import gamp_plots, plots
from smisym.report.analysis_page import report_page
from smisym.report.files import write_derivation
from smisym.report.latex import derivation_document, derivation_formulas
from smisym.report.plot_parts import INK


def seen(page: str) -> str:
    """What a reader sees of a page, without markup."""
    page = re.sub(r"<style>.*?</style>|<annotation.*?</annotation>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ")


def test_a_page_of_what_is_no_network_has_no_layers_in_its_title() -> None:
    results = fake_results.results()
    assert "<title>What can be learned of two layers of attention on 2 tokens" in report_page(results)
    results["header"]["architecture"] = {"kind": "smi", "fields": ["z1"], "tokens": 1}
    assert "<title>What can be learned<" in report_page(results)


def test_overlaps_just_below_a_threshold_are_told_where_they_are_known() -> None:
    results = fake_results.results()
    weak = [t for t in results["thresholds"] if t["kind"] == "weak"]
    weak[1] |= {"Q": None}
    assert re.search(r"Layer 1 follows from α = 0\.7194\(6\) on\.", seen(report_page(results)))
    weak[1] |= {"Q": [[0.5, 0.25], [0.25, 0.75]]}
    text = seen(report_page(results))
    assert "0.5 0.25; 0.25 0.75" in text and "where layer 1 has overlap 0.5" in text
    weak[1] |= {"Q": [[0.5, 0.0], [0.0, 0.75]]}
    assert "diag(0.5, 0.75)" in seen(report_page(results))


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_panels_can_be_had_alone_and_have_the_curves_that_there_are() -> None:
    points = [point | {"bayes_error": None} for point in fake_results.points()]
    published = fake_results.published() | {"label": "of a paper"}
    (axes,) = plots.curve_figure(points, panels=["errors"]).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["plug-in"]
    curve = [{"alpha": alpha, "Q": [0.1, 0.2], "plug_in_error": 0.5 / alpha} for alpha in (0.5, 1.0)]
    (axes,) = plots.curve_figure(points, panels=["errors"], published=published | {"curve": curve}).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["plug-in", "of a paper (plug-in)"]
    assert [1.0, 0.5] in axes.lines[-1].get_xydata().tolist()


@pytest.mark.parametrize("result", ["success", "max_steps"])
def test_the_legend_of_gamp_names_what_is_drawn_and_no_more(result: str) -> None:
    runs = [run | {"result": result} for run in fake_results.gamp_runs()]
    names = legend(plots.curve_figure(fake_results.points(), gamp_points=gamp_plots.gamp_points(runs)))
    of_gamp = [name for name in names if "GAMP" in name]
    assert of_gamp == ["GAMP, $D = 1000$" + (", not converged" if result != "success" else "")]


def test_runs_without_a_step_have_no_last_overlap() -> None:
    runs = fake_results.gamp_runs()
    without = [runs[0] | {"iterations": []}, runs[5] | {"alpha": 2.5, "iterations": []}]
    made, same = gamp_plots.gamp_points([*without, *runs]), gamp_plots.gamp_points(runs)
    assert [(one["alpha"], one["runs"], one["Q"].tolist()) for one in made] == [
        (one["alpha"], one["runs"], one["Q"].tolist()) for one in same
    ]


def test_places_without_an_alpha_stay_empty() -> None:
    """Four values of alpha on a grid of three columns."""
    runs = [run | {"alpha": alpha} for alpha in (0.5, 0.9, 1.3, 1.7) for run in fake_results.gamp_runs()[:4]]
    figure = gamp_plots.gamp_figure(runs, title="GAMP")
    assert [axes.get_title() for axes in figure.axes] == [rf"$\alpha = {a}$" for a in (0.5, 0.9, 1.3, 1.7)]
    assert figure.get_suptitle() == "GAMP"


def test_what_is_no_figure_and_what_is_no_derivation_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"figure: given 3; .*pass what plot\(\) returned"):
        plots.save(3, tmp_path / "figure.svg")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"derivation: given 'text'.*write smisym.write_derivation\(smisym.derive"):
        write_derivation("text", tmp_path / "trail.html")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"path: given None; allowed: a path\. To fix: give the name of a file"):
        write_derivation(fake_results.derivation(), None)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_letters_that_no_latex_font_holds_are_commands_or_named() -> None:
    trail = Derivation("α λ Ω Λ ≤ é Ж 中 ϑ Α ο")
    trail.add(Step("link", "x", "", (Formula(None, "α_1 ≤ Λ"),)))
    text = derivation_document(trail)
    # A capital alpha has no command: it is no small one.
    named = "[U+0416] [U+4E2D] [U+03D1] [U+0391] [U+03BF]"
    assert rf"$\alpha$ $\lambda$ $\Omega$ $\Lambda$ $\le$ é {named}" in text
    assert r"\piece{\alpha _1}\piece[0]{{}\le  \Lambda}" in text


def test_formulas_alone_hold_what_cannot_be_set_as_comments() -> None:
    text = derivation_formulas(fake_results.hostile_derivation())
    shown = [line.split("%")[0].rstrip() for line in text.splitlines() if line.split("%")[0]]
    assert "\\input" not in "\n".join(shown) and "\\href" not in "\n".join(shown)
    assert r"% \frac{a" in text
    assert shown.count(r"\end{equation}") == shown.count(r"\begin{equation}") == 1


def test_what_is_no_number_is_shown_as_it_is_written() -> None:
    facts = dict(Solution({"kind": "text"}, Result.SUCCESS).card().facts)
    assert facts["value"] == "{'kind': 'text'}"
    assert dict(Solution(0.5, Result.SUCCESS, 0.01).card().facts)["value"] != facts["value"]
    with pytest.raises(InputError, match=r"make the table from solution\.value"):
        Solution([[1.0], [1.0, 2.0]], Result.SUCCESS).grid()


def test_a_hollow_point_of_a_curve_is_where_no_neighbour_is() -> None:
    (axes, *_) = plots.curve_figure(fake_results.points()[:1], panels=["overlap"]).axes
    assert [np.isfinite(line.get_ydata()).all() for line in axes.lines if line.get_color() != INK]
