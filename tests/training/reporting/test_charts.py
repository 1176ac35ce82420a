"""Charts: no spike is lost, scales are round, and every curve is there."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.training.reporting.charts import (
    Chart,
    Point,
    Scale,
    Series,
    downsample,
    render,
    short,
    smooth,
)


def _noise(count: int) -> list[Point]:
    draw = random.Random(0)
    return [(float(step), 2 + draw.random()) for step in range(count)]


def test_of_many_points_the_extremes_and_the_ends_remain() -> None:
    points = _noise(50_000)
    points[31_337] = (31_337.0, 99.0)
    points[777] = (777.0, -5.0)
    kept = downsample(points, 300)
    assert len(kept) <= 602
    assert {points[31_337], points[777], points[0], points[-1]} <= {*kept}
    assert kept == sorted(kept)
    assert {*kept} <= {*points}


def test_few_points_stay_as_they_are() -> None:
    assert downsample(_noise(600), 300) == _noise(600)
    assert downsample([], 300) == []


def test_smoothing_is_the_mean_of_the_neighbours_and_keeps_the_ends() -> None:
    line = [(float(x), 3.0 * x) for x in range(400)]
    for (_, smoothed), (_, value) in zip(smooth(line), line, strict=True):
        assert smoothed == pytest.approx(value, abs=1e-6)
    points = _noise(400)
    middle = [y for _, y in points[200 - 5 : 200 + 6]]
    assert smooth(points)[200][1] == pytest.approx(sum(middle) / 11, abs=1e-6)
    assert smooth(points[:30]) == points[:30]


def test_one_enormous_value_does_not_blur_those_far_behind_it() -> None:
    points = [(float(x), 2.5) for x in range(400)]
    points[10] = (10.0, 1e30)
    assert smooth(points)[300][1] == 2.5


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.booleans(), st.booleans())
def test_scales_hold_their_values_and_have_few_round_ticks(
    values: list[float], from_zero: bool, may_be_log: bool
) -> None:
    scale = Scale(values, from_zero=from_zero, may_be_log=may_be_log)
    assert all(0 <= scale.at(value) <= 1 for value in values)
    ticks = scale.ticks()
    assert len(ticks) <= 7
    room = (scale.high - scale.low) * 1e-6
    assert all(scale.low - room <= tick <= scale.high + room for tick in ticks)


def test_a_wide_range_is_shown_by_decades() -> None:
    scale = Scale([0.01, 1.0, 100.0], from_zero=False, may_be_log=True)
    assert scale.at(1.0) == pytest.approx(0.5)
    assert scale.at(0.0) == 0.0
    ticks = scale.ticks()
    assert ticks == pytest.approx([0.01, 0.1, 1, 10, 100])


def test_one_value_out_of_all_proportion_lies_at_the_edge() -> None:
    scale = Scale([1.0] * 50 + [1e30], from_zero=False, may_be_log=True)
    assert scale.high == 1000.0
    assert scale.at(1e30) == 1.0


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.002, "0.002"),
        (1234, "1,234"),
        (12345, "12.3k"),
        (13.8e6, "13.8M"),
        (2.5, "2.5"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, written: str) -> None:
    assert short(value) == written


def _drawn(chart: Chart) -> ElementTree.Element:
    svg = re.search(r"<svg.*</svg>", render(chart))
    assert svg
    return ElementTree.fromstring(svg[0])


def test_every_series_and_mark_is_drawn_and_told_in_words() -> None:
    chart = Chart(
        "loss",
        "Loss",
        "nats",
        [Series("raw", _noise(2000), "faint"), Series("validation", [(500, 2.2)], "dots", 1)],
        resumes=[100],
        skips=[7, 8],
    )
    drawn = _drawn(chart)
    kinds = [path.get("class") for path in drawn.iter("path")]
    assert kinds == ["grid", "resume", "faint c0", "dots c1", "dot c1", "skip"]
    label = drawn.get("aria-label") or ""
    assert label.startswith("Loss. ")
    assert "validation: last 2.2 at step 500" in label
    assert "step skipped" in render(chart)


def test_nothing_to_draw_is_said() -> None:
    page = render(Chart("loss", "Loss", "nats", [Series("training", [])]))
    assert "Nothing was logged" in page
    assert "<svg" not in page


def test_names_of_strangers_are_escaped() -> None:
    page = render(Chart("loss", "Loss", "nats", [Series('"><script>', [(1, 1.0), (2, 2.0)])]))
    assert "<script>" not in page
