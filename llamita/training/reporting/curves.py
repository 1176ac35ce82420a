"""Which curves a report draws, and what of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from llamita.training.reporting.charts import Chart, Series, smooth
from llamita.training.reporting.record import BY_SOURCE, RunRecord

_WITH_SKIPS = ("loss", "gradient")


def charts_of(records: Sequence[RunRecord]) -> list[Chart]:
    """All charts of a report; those of several runs lie over each other, a colour for each."""
    curves = _Curves(records)
    alone = records[0] if len(records) == 1 else None
    skips = [step for step, *_ in alone.skipped] if alone else []
    memory = curves.of("peak_memory_mb", "process")
    memory += [one for one in curves.of("cuda_peak_memory_mb", "GPU", colour=1) if one.points]
    table: list[tuple[str, str, str, list[Series]]] = [
        ("loss", "Loss", "nats a token", curves.losses()),
        ("bits", "Bits per byte", "of held-out text", curves.validation("bits_per_byte")),
        ("gradient", "Gradient norm", "before clipping", curves.of("gradient_norm")),
        ("rate", "Learning rate", "", curves.of("learning_rate")),
        ("speed", "Throughput", "tokens a second", curves.of("tokens_per_second")),
        ("mfu", "MFU", "% of the measured peak", curves.of("mfu", "MFU", factor=100)),
        ("memory", "Peak memory", "MB", memory),
    ]
    if alone and alone.sources:
        table.insert(
            2,
            (
                "sources",
                "Validation loss of each DATA",
                "nats a token",
                [
                    series
                    for number, name in enumerate(alone.sources)
                    for series in curves.of(f"{BY_SOURCE}{name}", name, "dots", number)
                ],
            ),
        )
    last = max((point[0] for *_, series in table for s in series for point in s.points), default=0)
    return [
        Chart(
            key,
            title,
            unit,
            series,
            x_unit="token" if curves.by_tokens else "step",
            last=last,
            from_zero=key in ("rate", "speed", "mfu", "memory"),
            resumes=alone.resumes if alone else [],
            skips=skips if key in _WITH_SKIPS else [],
        )
        for key, title, unit, series in table
    ]


class _Curves:
    """Series of what runs logged.

    By steps; runs whose steps see different amounts of tokens are compared by tokens.
    """

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self._records = records
        self._several = len(records) > 1
        sizes = [record.tokens_per_step for record in records]
        self.by_tokens = None not in sizes and len(set(sizes)) > 1

    def of(
        self,
        key: str,
        label: str | None = None,
        style: Literal["line", "dots"] = "line",
        colour: int = 0,
        factor: float = 1.0,
    ) -> list[Series]:
        """A series for each run; `colour` is for a run alone."""
        found = []
        for number, record in enumerate(self._records):
            width = (record.tokens_per_step or 1) if self.by_tokens else 1
            points = [(step * width, value * factor) for step, value in record.points(key)]
            name = label or key.replace("_", " ")
            name = f"{record.name}: {name}" if self._several else name
            found.append(Series(name, points, style, number if self._several else colour))
        return found

    def validation(self, key: str) -> list[Series]:
        return self.of(f"validation_{key}", "validation", "dots", 1)

    def losses(self) -> list[Series]:
        """The loss of the steps, smoothed where there are many, and of validation.

        What is learnt from a teacher is no loss of the text alone, as validation's is.
        """
        found: list[Series] = []
        for record, raw in zip(self._records, self.of("loss", "training"), strict=True):
            if record.recipe.get("teacher"):
                raw = replace(raw, name=f"{raw.name}, with the teacher")
            smoothed = smooth(raw.points)
            if smoothed == list(raw.points):
                found.append(raw)
                continue
            if not self._several:
                found.append(Series("each logged step", raw.points, "faint", raw.colour))
            found.append(Series(f"{raw.name}, smoothed", smoothed, "line", raw.colour))
        return found + self.validation("loss")
