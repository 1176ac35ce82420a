"""Line charts as inline SVG that needs no script, no font and no network.

The SVG holds curves alone and is stretched to the width there is, with strokes that keep their
width. Titles, scales and legends are HTML around it: their letters stay readable on a phone, and
colours follow the page's, in the light and in the dark. A picture drawn as a whole, as matplotlib
does, has letters that shrink with it and colours that stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from llamita.files.html import text

Point = tuple[float, float]

COLOURS = 6
_FINE = 1 << 24
_TALLEST = 1000.0  # times the median: what is above lies at the upper edge
_UNITS = 1000  # of the SVG's own coordinates, both ways
_TICKS = 5
_MOST_FACTS = 3  # lines of words below a chart
_NAMED_POINTS = 60  # so many dots have their value as a tool tip
_DECADES = 20.0  # a range of so many times its lowest value is shown on a logarithmic scale


@dataclass(frozen=True)
class Series:
    """A curve over steps. `faint` is a background to another, `dots` marks each point."""

    name: str
    points: Sequence[Point]
    style: Literal["line", "faint", "dots"] = "line"
    colour: int = 0


@dataclass(frozen=True)
class Chart:
    """What stands in one diagram. `resumes` and `skips` are steps to mark; x goes to `last`."""

    key: str
    title: str
    unit: str
    series: Sequence[Series]
    x_unit: str = "step"
    last: float = 0.0
    from_zero: bool = False
    resumes: Sequence[float] = field(default=())
    skips: Sequence[float] = field(default=())


def downsample(points: Sequence[Point], buckets: int) -> list[Point]:
    """At most 2 × `buckets` + 2 points: the lowest and highest of each part, and the ends.

    No spike is lost, however many points there are.
    """
    if len(points) <= 2 * buckets:
        return list(points)
    kept = {0, len(points) - 1}
    for bucket in range(buckets):
        part = range(bucket * len(points) // buckets, (bucket + 1) * len(points) // buckets)
        kept.add(min(part, key=lambda at: points[at][1]))
        kept.add(max(part, key=lambda at: points[at][1]))
    return [points[at] for at in sorted(kept)]


def smooth(points: Sequence[Point], parts: int = 40) -> list[Point]:
    """Each value as the mean of those around it, a `parts`-th of all of them."""
    half = len(points) // parts // 2
    if not half:
        return list(points)
    # Sums of whole numbers are exact: one enormous value takes no digits off those behind it.
    sums = [0]
    for _, y in points:
        sums.append(sums[-1] + int(y * _FINE))
    smoothed = []
    for at, (x, _) in enumerate(points):
        reach = min(half, at, len(points) - 1 - at)
        low, high = at - reach, at + reach + 1
        smoothed.append((x, (sums[high] - sums[low]) / ((high - low) * _FINE)))
    return smoothed


def short(value: float) -> str:
    """A number as a person writes it: 12,345 as 12.3k, small ones with three digits."""
    size = abs(value)
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / (1e3 if letter == 'k' else unit):.3g}{letter}"
    return f"{value:,.0f}" if size >= 1000 or value == int(value) else f"{value:.3g}"


class Scale:
    """A range of values on a line from 0 to 1, with round numbers on it."""

    def __init__(self, values: Iterable[float], *, from_zero: bool, may_be_log: bool) -> None:
        known = [*values] or [0.0]
        low, high = min(known), max(known)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        positive = [value for value in known if value > 0]
        if positive:
            high = min(high, _TALLEST * median(positive))
        self.is_log = (
            may_be_log and not from_zero and bool(positive) and high > _DECADES * min(positive)
        )
        if self.is_log:
            low = max(min(positive), high / _TALLEST**3)
        elif low == high:
            room = abs(low) / 10 or 1.0
            low, high = (low, low + room) if from_zero else (low - room, high + room)
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        """Where a value lies; one out of the range, as 0 on a logarithmic one, at its end."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """A few round numbers in the range."""
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for factors in ((1, 2, 5), (1, 3), (1,)):
                ticks = [f * 10.0**e for e in range(first, last + 1) for f in factors]
                ticks = [tick for tick in ticks if self.low <= tick <= self.high]
                if len(ticks) <= _TICKS + 1:
                    return ticks
            return ticks[:: math.ceil(len(ticks) / _TICKS)]
        rough = (self.high - self.low) / _TICKS
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * f for f in (1, 2, 5, 10) if size * f >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def render(chart: Chart, buckets: int = 300) -> str:
    """A `<figure>` of the chart; with nothing to draw, one that says so."""
    series = [one for one in chart.series if one.points]
    unit = ", ".join(filter(None, (chart.unit, f"by {chart.x_unit}")))
    head = f'<h3>{text(chart.title)}</h3><p class="unit">{text(unit)}</p>'
    if not series:
        body = '<p class="none">Nothing was logged for this yet.</p>'
        return f'<figure id="{chart.key}"><figcaption>{head}</figcaption>{body}</figure>'
    places = [chart.last, *(point[0] for one in series for point in one.points)]
    x = Scale(places, from_zero=True, may_be_log=False)
    y = Scale(
        (p[1] for one in series for p in one.points), from_zero=chart.from_zero, may_be_log=True
    )
    facts = [_facts(one, chart.x_unit) for one in series if one.style != "faint" or len(series) < 2]
    spoken = text(f"{chart.title}. {' '.join(facts)}")
    if len(facts) > _MOST_FACTS:  # all of them are in the label
        facts = []
    words = "".join(f'<p class="facts">{text(fact)}</p>' for fact in facts)
    curves = "".join(_curve(one, x, y, buckets) for one in series)
    lines = "".join(f"M0 {_up(y.at(tick))}H{_UNITS}" for tick in y.ticks())
    return (
        f'<figure id="{chart.key}"><figcaption>{head}</figcaption><div class="plot">'
        f"{_labels('y', y)}"
        f'<svg role="img" aria-label="{spoken}" viewBox="0 0 {_UNITS} {_UNITS}" '
        f'preserveAspectRatio="none"><path class="grid" d="{lines}"/>'
        f"{_resumes(chart, x)}{curves}{_skips(chart, x)}</svg>{_labels('x', x)}</div>"
        f"{_legend(chart, series)}"
        f"{words}</figure>"
    )


def _curve(series: Series, x: Scale, y: Scale, buckets: int) -> str:
    points = [
        (round(_UNITS * x.at(at)), _up(y.at(value)), at, value)
        for at, value in downsample(series.points, buckets)
    ]
    path = "M" + "L".join(f"{px} {py}" for px, py, *_ in points)
    drawn = f'<path class="{series.style} c{series.colour % COLOURS}" d="{path}"/>'
    if series.style != "dots" and len(points) > 1:
        return drawn
    # A line of no length with round ends: a dot that stretching leaves round.
    if len(points) > _NAMED_POINTS:
        dots = "".join(f"M{px} {py}h0" for px, py, *_ in points)
        return drawn + f'<path class="dot c{series.colour % COLOURS}" d="{dots}"/>'
    return drawn + "".join(
        f'<path class="dot c{series.colour % COLOURS}" d="M{px} {py}h0">'
        f"<title>{text(f'{series.name}: {short(value)} at {short(at)}')}</title></path>"
        for px, py, at, value in points
    )


def _resumes(chart: Chart, x: Scale) -> str:
    lines = "".join(f"M{round(_UNITS * x.at(step))} 0V{_UNITS}" for step in chart.resumes)
    return f'<path class="resume" d="{lines}"/>' if lines else ""


def _skips(chart: Chart, x: Scale) -> str:
    places = sorted({round(_UNITS * x.at(step)) for step in chart.skips})
    ticks = "".join(f"M{at} {_UNITS}v-60" for at in places)
    return f'<path class="skip" d="{ticks}"/>' if ticks else ""


def _labels(axis: Literal["x", "y"], scale: Scale) -> str:
    """Round numbers along an axis."""
    spans = []
    for tick in scale.ticks():
        at = scale.at(tick)
        if axis == "y":
            spans.append(f'<span style="top:{100 * (1 - at):.1f}%">{short(tick)}</span>')
        elif tick == int(tick):  # there are no halves of steps
            place = f"left:{100 * at:.1f}%"
            spans.append(f'<span style="{place}">{short(tick)}</span>')
    return f'<div class="{axis}" aria-hidden="true">{"".join(spans)}</div>'


def _legend(chart: Chart, series: Sequence[Series]) -> str:
    items = [
        f'<li><i class="{one.style} c{one.colour % COLOURS}"></i>{text(one.name)}</li>'
        for one in series
    ]
    if chart.resumes:
        items.append('<li><i class="resume"></i>resumed</li>')
    if chart.skips:
        items.append('<li><i class="skip"></i>step skipped</li>')
    return f'<ul class="legend">{"".join(items)}</ul>' if len(items) > 1 else ""


def _facts(series: Series, x_unit: str) -> str:
    low, high = (pick(series.points, key=lambda p: p[1]) for pick in (min, max))
    last = series.points[-1]
    return (
        f"{series.name}: last {short(last[1])} at {x_unit} {short(last[0])}, lowest "
        f"{short(low[1])} at {short(low[0])}, highest {short(high[1])} at {short(high[0])}."
    )


def _up(share: float) -> int:
    return round(_UNITS * (1 - share))
