"""Reports: the same rows in every form, strangers' names made harmless, only reports replaced."""

from __future__ import annotations

import html.parser
import os

import pytest

from llamita.errors import DataError
from llamita.evaluation.report import (
    as_html,
    as_lines,
    as_markdown,
    check_paths,
    sections_of,
    write_reports,
)

RESULT = {
    "bits_per_byte": 2.25,
    "bits_per_byte_stderr": 0.125,
    "perplexity": 1234.5,
    "bytes": 1_234_567,
    "tokens": 1000,
    "documents": 1,
    "stderr_over": "windows",
    "mcq": {
        "questions": 10,
        "chance": 0.25,
        "full": {"sum": {"accuracy": 0.5, "stderr": 0.1}, "pmi": {"accuracy": 1.0, "stderr": None}},
    },
    "tasks": {"arc|<b>": {"acc,none": 0.75, "acc_stderr,none": 0.0625, "alias": "arc"}},
}
COMPARISON = {
    "text": {"bits_per_byte": {"difference": -0.5, "stderr": 0.1, "p_value": 0.0004}},
    "mcq": {"full": {"sum": {"difference": 0.25, "stderr": None, "p_value": None}}},
}


class _Cells(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        if self.tags[-1] in ("td", "th") and self.rows:
            self.rows[-1].append(data)


def rows_of_html(page: str) -> list[list[str]]:
    parser = _Cells()
    parser.feed(page)
    return parser.rows


def test_every_number_is_a_row_with_its_error():
    text, mcq, tasks = sections_of({"model": RESULT})
    assert ("bits per byte", "2.2500 ± 0.1250") in text.rows
    assert ("perplexity", "1,234.5") in text.rows
    assert ("bytes", "1,234,567") in text.rows
    assert not any("stderr" in row[0] for row in text.rows)
    assert "stretches of 1,024 bytes" in text.note
    assert ("full sum accuracy", "0.5000 ± 0.1000") in mcq.rows
    assert ("full pmi accuracy", "1.0000") in mcq.rows
    assert tasks.rows == [("arc|<b> acc,none", "0.7500 ± 0.0625")]


def test_models_stand_beside_each_other_with_differences():
    text, mcq, tasks = sections_of({"a": RESULT, "b": {**RESULT, "mcq": {}}}, COMPARISON)
    assert text.head == ("", "a", "b", "difference", "p")
    assert text.rows[0] == (
        *("bits per byte", "2.2500 ± 0.1250", "2.2500 ± 0.1250"),
        *("-0.5000 ± 0.1000", "0.0004"),
    )
    assert ("full sum accuracy", "0.5000 ± 0.1000", "-", "+0.2500", "-") in mcq.rows
    assert tasks.rows[0][-2:] == ("", "")


def test_html_and_markdown_and_lines_have_the_same_cells():
    sections = sections_of({"<script>alert(1)</script>": RESULT, "b": RESULT}, COMPARISON)
    page, markdown, lines = as_html(sections), as_markdown(sections), as_lines(sections)
    shown = rows_of_html(page)
    for section in sections:
        for row in section.rows:
            assert [cell for cell in row if cell] in shown
            assert row[1] in markdown
            assert row[1] in lines
    assert "<script" not in page + markdown
    assert "default-src 'none'" in page
    assert "arc\\|&lt;b&gt; acc" in markdown
    for line in markdown.splitlines():
        if line.startswith("| "):
            assert line.replace("\\|", "").count("|") == 6


def test_reports_replace_reports_and_nothing_else(tmp_path):
    page, markdown = tmp_path / "new" / "page.html", tmp_path / "page.md"
    sections = sections_of({"model": RESULT})
    for _ in range(2):
        check_paths(page, markdown)
        write_reports(sections, page, markdown)
    assert page.read_text() == as_html(sections)
    assert markdown.read_text() == as_markdown(sections)
    (tmp_path / "notes.md").write_text("mine")
    for paths in ((None, tmp_path / "notes.md"), (tmp_path, None), (markdown, None)):
        with pytest.raises(DataError, match="is no report"):
            check_paths(*paths)


def test_a_report_that_cannot_be_written_is_told_before(tmp_path):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(DataError, match=r"file is no folder"):
        check_paths(tmp_path / "file" / "new" / "page.html", None)
    with pytest.raises(DataError, match="are both"):
        check_paths(tmp_path / "page", tmp_path / "." / "page")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o555)
        with pytest.raises(DataError, match="cannot be written to"):
            check_paths(None, tmp_path / "closed" / "page.md")


def test_names_that_are_not_ours_stay_as_they_are():
    kinds = {"add_note": {"turns": 2, "accuracy": 0.5}}
    result = {"tools": {"cut_answers": 1, "by_kind": kinds}, "tasks": {"arc_easy": {"acc_norm": 1}}}
    tools, tasks = sections_of({"model": result})
    assert [row[0] for row in (*tools.rows, *tasks.rows)] == [
        *("cut answers", "by kind add_note turns", "by kind add_note accuracy", "arc_easy acc_norm")
    ]


def test_on_a_terminal_long_names_of_models_make_no_wide_columns():
    first, second = "/a/long/path" * 9, "/another/long/path" * 9
    lines = as_lines(sections_of({first: RESULT, second: RESULT}, COMPARISON)).split("\n")
    assert lines[:2] == [f"A: {first}", f"B: {second}"]
    assert max(map(len, lines[2:])) < 100
