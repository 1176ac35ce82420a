"""`report.html`: what a run, or several beside each other, did; one file that needs nothing else.

Generated text is a stranger's: everything is escaped, and control characters are shown as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llamita
from llamita.errors import TrainingError
from llamita.files import write_own
from llamita.files.html import cut, details, file_text, page, table, text
from llamita.training.reporting.charts import render, short
from llamita.training.reporting.curves import charts_of
from llamita.training.reporting.record import RunRecord

REPORT_NAME = "report.html"

_GENERATOR = '<meta name="generator" content="llamita report">'
_BUCKETS = 300  # of a curve; fewer where many runs share the page
_MOST_SAMPLES = 24
_NEWEST_SAMPLES = 3  # that are seen without opening anything
_MOST_SKIPS = 50


def write_report(records: Sequence[RunRecord], path: Path) -> int:
    """Write the page to `path`, in place of an earlier report; its size in bytes.

    Raises:
        TrainingError: `path` is something else than a report.
    """
    rendered = render_page(records)
    write_own(path, rendered, _GENERATOR, TrainingError)
    return len(rendered.encode())


def render_page(records: Sequence[RunRecord]) -> str:
    """The whole page."""
    names = ", ".join(record.name for record in records)
    heads = "".join(map(_head, records))
    buckets = max(40, _BUCKETS // len(records))
    charts = "".join(render(chart, buckets) for chart in charts_of(records))
    bodies = "".join(_body(record, len(records) > 1) for record in records)
    return page(
        f"{names[:200]}: training report",
        f'<main>{heads}<h2>Curves</h2><div class="charts">{charts}</div>{bodies}</main>'
        f"<footer>llamita {text(llamita.__version__)}. The dashed line of validation is on text "
        "the model never trains on. MFU is the share of this machine's measured peak of matrix "
        "products that the model's own arithmetic takes.</footer>",
        _GENERATOR,
    )


def _head(record: RunRecord) -> str:
    figures = record.figures()
    step, steps = figures["step"], figures["steps"]
    if figures["finished"]:
        state = f"Finished: {steps:,} steps."
    else:
        of = f" of {steps:,}" if steps else ""
        state = f"Not finished: at step {step:,}{of}."
    if record.written:
        state += f" Last logged {record.written:%Y-%m-%d %H:%M} UTC."
    share = 100 * min(1.0, step / steps) if steps else 0
    notes = "".join(f"<li>{text(note)}</li>" for note in record.missing)
    if notes:
        notes = f'<div class="notes" role="note">Missing:<ul>{notes}</ul></div>'
    cells = "".join(_cell(*cell) for cell in _cells(figures))
    return (
        f'<header><h1>{text(record.name)}</h1><p class="soft">{text(state)}</p>'
        f'<div class="progress" role="progressbar" aria-label="steps taken" aria-valuemin="0" '
        f'aria-valuemax="100" aria-valuenow="{share:.0f}"><div style="width:{share:.1f}%"></div>'
        f'</div>{notes}<dl class="figures">{cells}</dl></header>'
    )


def _cell(name: str, value: str, more: str) -> str:
    small = f"<small>{text(more)}</small>" if more else ""
    return f"<div><dt>{text(name)}</dt><dd>{text(value)}{small}</dd></div>"


def _cells(figures: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Headline figures as name, value and a small line below."""

    def shown(key: str, form: Callable[[Any], str]) -> str:
        return "-" if figures[key] is None else form(figures[key])

    best = shown("best_validation_loss", lambda v: f"best {v:.3f} at step {figures['best_step']:,}")
    resumed = len(figures["resumed_after"])
    cells = [
        ("Validation loss", shown("validation_loss", _loss), best),
        (
            "Bits per byte",
            shown("bits_per_byte", _loss),
            shown("best_bits_per_byte", lambda v: f"best {v:.3f}"),
        ),
        ("Training loss", shown("loss", _loss), "mean of the last steps"),
        ("Parameters", shown("parameters", short), shown("parameters", lambda v: f"{v:,}")),
        ("Tokens seen", shown("tokens", short), ""),
        ("Training time", shown("seconds", _duration), f"resumed {resumed} ×" if resumed else ""),
        ("Tokens a second", shown("tokens_per_second", short), "median"),
        (
            "MFU",
            shown("mfu", lambda v: f"{100 * v:.0f} %"),
            shown("peak_flops", lambda v: f"of {short(v / 1e9)} GFLOP/s, as measured"),
        ),
        (
            "Peak memory",
            shown("peak_memory_mb", _gigabytes),
            shown("cuda_peak_memory_mb", lambda v: f"GPU {_gigabytes(v)}"),
        ),
        ("Skipped steps", str(figures["skipped_steps"]), ""),
    ]
    return [(name, value, "" if more == "-" else more) for name, value, more in cells]


def _body(record: RunRecord, several: bool) -> str:
    of = f" of {text(record.name)}" if several else ""
    skips = f"<h2>Skipped steps{of}</h2>{_skips(record)}" if record.skipped else ""
    data = "".join(map(_data_table, record.data.items())) or "<p>Not found.</p>"
    return (
        f"<h2>Samples{of}</h2>{_samples(record)}{skips}<h2>Making{of}</h2>"
        + details("Starting point", table(_starting_point(record)), is_open=True)
        + details("Data", data)
        + details("Model config", file_text(record.config_text))
        + details("Recipe", file_text(record.recipe_text))
    )


def _samples(record: RunRecord) -> str:
    samples = record.samples
    if not samples:
        return '<p class="none">No samples yet.</p>'
    count = min(len(samples), _MOST_SAMPLES)
    places = sorted({round(at * (len(samples) - 1) / max(1, count - 1)) for at in range(count)})
    shown = [
        f'<div class="sample"><p class="soft">after step {samples[at][0]:,}</p>'
        f'<pre dir="auto">{text(cut(samples[at][1]))}</pre></div>'
        for at in reversed(places)
    ]
    newest, earlier = shown[:_NEWEST_SAMPLES], shown[_NEWEST_SAMPLES:]
    if not earlier:
        return "".join(newest)
    every = "" if len(places) == len(samples) else f", {len(places)} of {len(samples):,} samples"
    return "".join(newest) + details(f"Earlier samples{every}", "".join(earlier))


def _skips(record: RunRecord) -> str:
    skipped = record.skipped
    rows = [(f"step {step:,}", f"{kind}: {reason}") for step, kind, reason in skipped]
    more = ""
    if len(rows) > _MOST_SKIPS:
        more = f'<p class="soft">The last {_MOST_SKIPS} of {len(rows):,}.</p>'
    return more + table(rows[-_MOST_SKIPS:])


def _starting_point(record: RunRecord) -> list[tuple[str, str]]:
    recipe = record.recipe
    rows = []
    if recipe.get("init"):
        rows.append(("weights of", str(recipe["init"])))
        rows.append(("fingerprint", str(recipe.get("init_fingerprint", "unknown"))))
    elif recipe:
        rows.append(("weights", f"fresh, seed {recipe.get('seed', 'unknown')}"))
    teacher = recipe.get("teacher")
    if isinstance(teacher, dict):
        rows += [(f"teacher, {name}", str(value)) for name, value in teacher.items()]
    rows += [
        ("begun by", f"llamita {record.manifest.get('llamita_version', 'unknown')}"),
        ("resumed after", ", ".join(f"step {step:,.0f}" for step in record.resumes) or "never"),
        ("folder", str(record.path)),
    ]
    return rows


def _data_table(item: tuple[str, dict[str, Any]]) -> str:
    folder, manifest = item
    rows = [("folder", folder)]
    for split in ("train", "val"):
        counts = manifest.get(split)
        if isinstance(counts, dict):
            rows.append((split, ", ".join(f"{_grouped(v)} {k}" for k, v in counts.items() if v)))
    tokenizer = manifest.get("tokenizer")
    if isinstance(tokenizer, dict):
        rows += [(f"tokenizer, {name}", _grouped(value)) for name, value in tokenizer.items()]
    for name in ("bytes_per_token", "dtype", "fingerprint"):
        if name in manifest:
            rows.append((name.replace("_", " "), _grouped(manifest[name])))
    sources = manifest.get("sources")
    if isinstance(sources, list):
        names = [str(s.get("path")) for s in sources[:5] if isinstance(s, dict)]
        count = manifest.get("source_files")
        count = count if type(count) is int else len(sources)
        more = f" and {count - len(names):,} more" if count > len(names) else ""
        rows.append(("sources", ", ".join(names) + more))
    settings = manifest.get("settings")
    if isinstance(settings, dict):
        rows += [(f"prepared with {name}", json.dumps(v)) for name, v in settings.items()]
    return table(rows)


def _grouped(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if type(value) is int else str(value)


def _loss(value: float) -> str:
    return f"{value:.3f}"


def _gigabytes(megabytes: float) -> str:
    return f"{megabytes / 1e3:.2f} GB"


def _duration(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    if minutes >= 60 * 24:
        return f"{minutes // 1440} d {minutes % 1440 // 60} h"
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {whole} s" if minutes else f"{whole} s"
