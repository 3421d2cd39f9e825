"""Figures: themable, legible, self-contained."""

import itertools
import re

import pytest

from geartrain.reporting import svg
from geartrain.reporting.figures import Line, comparison_figure, families_figure, line_figure


def line(y, **options):
    return line_figure(
        [Line("a", svg.AFTER, list(range(len(y))), y)], width=340, height=180, name="n", label="l", **options
    )


def texts(figure):
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure)


def rate(estimate):
    return {"estimate": estimate, "low": max(0.0, estimate - 0.1), "high": min(1.0, estimate + 0.1)}


def test_colours_are_the_pages_and_text_is_text():
    figure = line([0.1, 0.2, 0.3])
    assert "var(--after)" in figure
    assert "var(--muted)" in figure
    assert "#0000" not in figure
    assert "font-family" not in figure
    assert "a 0.3" in texts(figure)


def test_tick_labels_keep_all_their_digits():
    labels = texts(line([0.011, 0.012, 0.0135, 0.0125]))
    assert "0.0125" in " ".join(labels)
    numbers = [label for label in labels if label.startswith("0.0")]
    assert len(numbers) == len(set(numbers)) >= 3


def test_rounding_noise_does_not_look_like_a_trend():
    labels = texts(line([0.3333333134651184, 0.3333333432674408]))
    assert not [label for label in labels if "e" in label]
    assert "0.32" in " ".join(labels)


def test_axis_of_counts_does_not_go_below_zero():
    assert not [label for label in texts(line([0.0, 0.0])) if label.startswith(("-", "\u2212"))]


def test_percent_ticks_keep_their_half():
    assert "2.5 %" in texts(line([0.0, 0.02], shares=True))


def test_figure_is_the_same_every_time_and_holds_no_date():
    assert line([1.0, 2.0]) == line([1.0, 2.0])
    assert not re.search(r"20\d\d-\d\d|<metadata|<style|<\?xml|<!DOCTYPE|xmlns", line([1.0, 2.0]))


def test_texts_are_escaped():
    figure = line_figure(
        [Line("<script>", svg.AFTER, [0, 1], [0, 1])], width=340, height=180, name="n", label='"><script>'
    )
    assert "<script>" not in figure
    assert "&lt;script&gt;" in figure


def test_dollar_signs_are_not_formulas():
    assert "cost $x_1$ 1" in texts(
        line_figure([Line("cost $x_1$", svg.AFTER, [0, 1], [0, 1])], width=400, height=180, name="n", label="l")
    )


@pytest.mark.parametrize("values", [[0.5], [0.0, 0.0, 0.0], [1.0, 1.0], [1e-9, 2e-9], [-3.0, 4.0]])
def test_odd_series_draw_without_warning(values):
    assert texts(line(values))
    assert texts(line([abs(v) % 1.01 for v in values], shares=True, mark=(0.0, "kept")))


def test_labels_that_would_touch_are_pushed_apart():
    lines = [Line(name, svg.AFTER, [0, 1], [0.5, 0.5 + i / 1000]) for i, name in enumerate("abc")]
    figure = line_figure(lines, width=400, height=200, name="n", label="l", shares=True)
    places = sorted(float(y) for y, t in re.findall(r'y="([\d.]+)"[^>]*>([abc]) ', figure))
    assert len(places) == 3
    assert min(b - a for a, b in itertools.pairwise(places)) >= 9


@pytest.mark.parametrize("width", [1000, 350])
def test_comparison_names_every_row_and_both_models(width):
    rows = [(f"split {i}", rate(i / 4), rate(1 - i / 4), rate(0.1)) for i in range(5)]
    shown = texts(comparison_figure(rows, width=width, name="n", label="l"))
    assert {"before", "after", *(f"split {i}" for i in range(5))} <= set(shown)


def test_families_show_counts_and_both_rates():
    rows = [{"family": "drill_down", "tasks": 20, "before": rate(0.2), "after": rate(0.65)}]
    shown = texts(families_figure(rows, width=900, name="n", label="l"))
    assert {"drill down", "20 tasks: 20 % to 65 %"} <= set(shown)
