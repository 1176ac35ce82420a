"""A run as one page, whatever state the run is in."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.training.records.manifest import sources_of
from llamita.training.reporting.record import read_record
from llamita.training.reporting.report import render_page, write_report
from tests.training.reports import make_run

CHARTS = ["loss", "bits", "gradient", "rate", "speed", "mfu", "memory"]
UNCLOSED = {"meta", "path", "br"}


class _Reader(HTMLParser):
    """Collects tags and checks that each that opens closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in UNCLOSED:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in UNCLOSED:
            assert self.open.pop() == tag


def _page(*runs: Path) -> str:
    return render_page([read_record(run) for run in runs])


def test_a_page_needs_nothing_from_outside_and_runs_nothing(tmp_path: Path) -> None:
    reader = _Reader(_page(make_run(tmp_path / "run")))
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "form", "base"}
    names = {name for _, attributes in reader.tags for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href")}
    policy = next(a for t, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy["content"] or "")


def test_generated_text_stays_text(tmp_path: Path) -> None:
    page = _page(make_run(tmp_path / "<b>run"))
    assert "&lt;script&gt;document.title=&#x27;taken&#x27;&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert "<b>run" not in page
    page.encode("utf-8")


def test_a_page_has_all_charts_and_what_made_the_run(data: Path, tmp_path: Path) -> None:
    page = _page(make_run(tmp_path / "run", data=data))
    reader = _Reader(page)
    assert [a["id"] for t, a in reader.tags if t == "figure"] == CHARTS
    classes = [a.get("class") for t, a in reader.tags if t == "path"]
    for curve in ("faint c0", "line c0", "dots c1", "dot c1", "resume", "skip"):
        assert curve in classes, curve
    for words in (
        "13.8M", "Finished: 400 steps", "resumed 1 ×", "fresh, seed 7", "gradient norm 77",
        "bpe", "documents", "context_length = 256", "hidden_size", "step 299",
    ):  # fmt: skip
        assert words in page, words
    assert "Missing:" not in page


def test_a_run_that_goes_on_says_how_far_it_is(tmp_path: Path) -> None:
    page = _page(make_run(tmp_path / "run", taken=100))
    assert "Not finished: at step 100 of 400." in page
    assert 'aria-valuenow="25"' in page


def test_one_line_is_a_dot_in_each_chart(tmp_path: Path) -> None:
    page = _page(make_run(tmp_path / "run", taken=1))
    dots = [a for t, a in _Reader(page).tags if t == "path" and a.get("class") == "dot c0"]
    assert len(dots) == len(CHARTS) - 1  # no validation yet


@pytest.mark.parametrize("damage", ["empty", "absent"])
def test_a_run_killed_before_its_first_line_has_a_page(tmp_path: Path, damage: str) -> None:
    run = make_run(tmp_path / "run", taken=0)
    if damage == "absent":
        (run / "metrics.jsonl").unlink()
    page = _page(run)
    assert page.count("Nothing was logged for this yet.") == len(CHARTS)
    assert "No samples yet." in page
    assert ("no metrics.jsonl yet" in page) == (damage == "absent")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "latest" / "config.json").unlink()
    (run / "manifest.json").write_text("[")
    (run / "recipe.toml").write_text("= no toml")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"torn\n{"step": 5}\n')
    missing = " ".join(read_record(run).missing)
    for words in ("latest/config.json", "manifest.json", "recipe.toml is no TOML", "damaged in"):
        assert words in missing, words
    assert "Not finished: at step 400." in _page(run)


def test_a_last_line_half_written_is_no_damage(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 401, "lo')
    assert not [note for note in read_record(run).missing if "damaged" in note]


def test_values_of_a_wrong_kind_are_passed_by(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", taken=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "loss": "low", "mfu": null, "sample": 5, "seconds": 1e999}\n')
        file.write(f'{{"step": 5, "loss": {10**400}, "gradient_norm": true}}\n')
    record = read_record(run)
    assert [step for step, _ in record.points("loss")] == [1, 2, 3]
    assert record.figures()["step"] == 5
    _page(run)


def test_a_step_without_labels_has_no_loss_to_draw(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", taken=2)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 0.0, "gradient_norm": 0.0, "skipped": "empty"}\n')
    record = read_record(run)
    assert [step for step, _ in record.points("loss")] == [1, 2]
    assert record.figures()["skipped_steps"] == 1


def test_tens_of_thousands_of_lines_stay_small_and_keep_their_spike(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 40_000)
    page = _page(run)
    assert len(page.encode()) < 300_000
    gradient = re.search(r'<figure id="gradient">.*?</figure>', page, re.DOTALL)
    assert gradient
    path = re.search(r'class="line c0" d="([^"]+)"', gradient[0])
    assert path
    heights = [int(pair.split()[1]) for pair in path[1].lstrip("M").split("L")]
    assert min(heights) == 0
    assert sorted(heights)[1] > 800


def test_of_many_samples_the_first_the_last_and_some_between_are_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", taken=1)
    lines = [json.dumps({"step": step, "sample": f"number {step}"}) for step in range(1, 501)]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    page = _page(run)
    assert "number 500" in page
    assert "number 1<" in page
    assert "24 of 500 samples" in page
    assert page.count('class="sample"') == 24


def test_several_runs_share_their_charts_and_keep_their_figures(tmp_path: Path) -> None:
    page = _page(make_run(tmp_path / "first"), make_run(tmp_path / "second", 200))
    reader = _Reader(page)
    assert [a["id"] for t, a in reader.tags if t == "figure"] == CHARTS
    classes = [a.get("class") for t, a in reader.tags if t == "path"]
    assert {"line c0", "line c1"} <= {*classes}
    assert "second: validation" in page
    assert page.count("<h1>") == 2


def test_runs_with_other_batches_are_compared_by_tokens(tmp_path: Path) -> None:
    same = _page(make_run(tmp_path / "a"), make_run(tmp_path / "b"))
    other = _page(make_run(tmp_path / "c"), make_run(tmp_path / "d", sequences=64))
    assert "at step 400" in same
    assert "at token 6.55M" in other


def test_data_with_losses_of_their_own_have_a_chart(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", taken=2)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "validation_loss/plays": 3.5, "validation_loss/<news>": 4.5}\n')
    chart = re.search(r'<figure id="sources">.*?</figure>', _page(run), re.DOTALL)
    assert chart
    assert "plays: last 3.5" in chart[0]
    assert "&lt;news&gt;: last 4.5" in chart[0]


def test_the_curve_of_a_run_with_a_teacher_says_so(tmp_path: Path) -> None:
    alone, taught = make_run(tmp_path / "alone"), make_run(tmp_path / "taught")
    with (taught / "recipe.toml").open("a") as file:
        file.write('[teacher]\nmodel = "hf/teacher"\n')
    assert "training, with the teacher, smoothed" in _page(taught)
    assert "with the teacher" not in _page(alone)
    page = _page(alone, taught)
    assert "taught: training, with the teacher" in page
    assert "alone: training, with the teacher" not in page


def test_a_report_is_written_over_a_report_and_over_nothing_else(tmp_path: Path) -> None:
    records = [read_record(make_run(tmp_path / "run"))]
    page = tmp_path / "new" / "page.html"
    size = write_report(records, page)
    assert size == page.stat().st_size
    assert write_report(records, page) == size
    notes = tmp_path / "notes.html"
    notes.write_text("mine")
    with pytest.raises(TrainingError, match=r"notes\.html is there and is no report"):
        write_report(records, notes)
    assert notes.read_text() == "mine"


def test_what_is_no_run_is_refused_with_the_way_to_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(TrainingError, match="is no training run") as error:
        read_record(run / "latest")
    assert str(run) in (error.value.hint or "")
    with pytest.raises(TrainingError, match="is not there"):
        read_record(tmp_path / "nowhere")


def test_what_a_run_read_is_shown_when_it_is_gone(data: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    opened = TrainingData.open([data])
    path = run / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sources": sources_of(opened)}))
    assert "gone" in path.read_text()
    record = read_record(run)
    assert list(record.data) == [str(data)]
    assert record.missing == []
    page = _page(run)
    for words in (opened.fingerprint, "bpe", "documents", "and 35 more", "prepared with"):
        assert words in page, words
