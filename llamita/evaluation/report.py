"""What `llamita eval` found as tables: Markdown, a page of HTML, or lines for a terminal.

All three show the same rows. They are made from the result as plain data (what `--json` prints):
each number is a row, beside its standard error where it has one; several models are columns.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llamita
from llamita.errors import DataError
from llamita.files import check_own, write_own
from llamita.files.html import grid, page, text

HTML_MARK = '<meta name="generator" content="llamita eval">'
MARKDOWN_MARK = "<!-- llamita eval -->"

TITLES = {
    "text": "Text",
    "mcq": "Multiple choice",
    "tools": "Tool calls",
    "speed": "Speed",
    "tasks": "Tasks of lm-eval-harness",
}
"""The blocks of a result, in their order, by the keys they have there. What stands at the top of a
result is of the text."""

_NOTES = {
    "text": "Every byte is paid for, each document behind its beginning. Perplexity is per token, "
    "and compares models of one tokenizer alone.",
    "mcq": "full: the answers' texts are scored; letters: A, B, C, … after the list of answers. "
    "sum: by ln p; per_byte, per_token: by that over the answer's length; pmi: by ln p less what "
    "it is without the question. chance: what guessing gives.",
    "speed": "Measured on this machine, in this run.",
}
_COMPARED = ("difference", "p")


@dataclass(frozen=True)
class Section:
    """A table with its title and what is to be known of it."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sections_of(
    results: Mapping[str, Mapping[str, Any]], comparison: Mapping[str, Any] | None = None
) -> list[Section]:
    """The tables of one model's result, or of several models' beside each other, by their names.

    comparison: what `--compare` found, by the same keys.
    """
    sections = []
    for block, title in TITLES.items():
        columns = [dict(_rows(_block(result, block))) for result in results.values()]
        labels = list(dict.fromkeys(path for column in columns for path in column))
        compared = (comparison or {}).get(block, {})
        rows = []
        for path in labels:
            row = [_label(block, path)]
            row += [column.get(path, "-") for column in columns]
            if comparison is not None:
                row += _difference(compared, path)
            rows.append(tuple(row))
        if rows:
            names = ("", *results, *(_COMPARED if comparison is not None else ()))
            note = _NOTES.get(block, "") + _units_note(results.values(), block)
            sections.append(Section(title, note, names, rows))
    return sections


def settings_section(results: Sequence[Mapping[str, Any]]) -> Section:
    """What was measured, as each result's `settings` say it, for the foot of a page."""
    columns = []
    for result in results:
        settings = dict(result["settings"])
        column = {**settings.pop("options"), **settings}
        for number, file in enumerate(column.pop("files"), start=1):
            column[f"file {number}"] = file["file"]
            column[f"file {number}, bytes"] = f"{file['bytes']:,}"
            column[f"file {number}, SHA-256"] = file["sha256"]
        columns.append(column)
    names = list(dict.fromkeys(name for column in reversed(columns) for name in column))
    rows = [(name.replace("_", " "), *(str(c.get(name, "-")) for c in columns)) for name in names]
    return Section("What was measured", "", ("", *(str(c["model"]) for c in columns)), rows)


def as_lines(sections: Sequence[Section]) -> str:
    """For a terminal."""
    blocks = []
    letters = {}
    if sections and len(sections[0].head) > 2:  # models' paths are wider than their figures
        models = [name for name in sections[0].head[1:] if name not in _COMPARED]
        letters = dict(zip(models, ("A", "B"), strict=False))
        blocks.append("\n".join(f"{letter}: {name}" for name, letter in letters.items()))
    for section in sections:
        head = tuple(letters.get(name, name) for name in section.head)
        table = [head, *section.rows]
        widths = [max(len(row[at]) for row in table) for at in range(len(head))]
        shown = table if any(head[2:]) else section.rows
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in shown
        ]
        blocks.append("\n".join([f"{section.title}:", *(f"  {line}" for line in lines)]))
    return "\n".join(blocks)


def as_markdown(sections: Sequence[Section]) -> str:
    """For a README or a model card."""
    parts = [f"{MARKDOWN_MARK}\n# Evaluation\n"]
    for section in sections:
        head = [name or "figure" for name in section.head]
        table = [head, ["---"] * len(head), *section.rows]
        lines = ["| " + " | ".join(map(_markdown_text, row)) + " |" for row in table]
        parts.append(f"## {section.title}\n\n" + "\n".join(lines) + "\n")
        if section.note:
            parts.append(f"{section.note}\n")
    parts.append(f"Made by llamita {llamita.__version__}.\n")
    return "\n".join(parts)


def as_html(sections: Sequence[Section]) -> str:
    """One page that needs nothing else."""
    models = [name for name in sections[0].head[1:] if name not in _COMPARED] if sections else []
    title = ", ".join(models)
    body = "".join(
        f'<h2>{text(section.title)}</h2>{grid(section.head, section.rows)}<p class="soft">'
        f"{text(section.note)}</p>"
        for section in sections
    )
    return page(
        f"{title[:200]}: evaluation",
        f"<header><h1>{text(title)}</h1></header><main>{body}</main>"
        f"<footer>llamita {text(llamita.__version__)}. ± is one standard error.</footer>",
        HTML_MARK,
    )


def check_paths(html_path: Path | None, markdown_path: Path | None) -> None:
    """Before anything is measured: each report can be written, and overwrites nothing else.

    Raises:
        DataError: it cannot, or would.
    """
    for path, mark in ((html_path, HTML_MARK), (markdown_path, MARKDOWN_MARK)):
        if path is not None:
            check_own(path, mark, DataError)
            folder = path.absolute().parent
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent  # what is missing is made
            if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                what = "cannot be written to" if folder.is_dir() else "is no folder"
                raise DataError(
                    f"{path} cannot be written: {folder} {what}.", hint="Name another file."
                )
    if html_path and markdown_path and html_path.resolve() == markdown_path.resolve():
        raise DataError(
            f"--html and --markdown are both {html_path}.", hint="Name a file for each."
        )


def write_reports(
    sections: Sequence[Section], html_path: Path | None, markdown_path: Path | None
) -> None:
    """Write those that are wanted, each in place of an earlier one and of nothing else."""
    if html_path is not None:
        write_own(html_path, as_html(sections), HTML_MARK, DataError)
    if markdown_path is not None:
        write_own(markdown_path, as_markdown(sections), MARKDOWN_MARK, DataError)


def _block(result: Mapping[str, Any], block: str) -> Mapping[str, Any]:
    if block == "text":
        return {name: value for name, value in result.items() if name not in (*TITLES, "settings")}
    found: Mapping[str, Any] = result.get(block, {})
    return found


def _rows(
    block: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every number of a block by its path, with its standard error beside it."""
    for name, value in block.items():
        if isinstance(value, Mapping):
            yield from _rows(value, (*path, name))
        elif isinstance(value, int | float) and "stderr" not in name:
            error = block.get(_stderr_name(name), block.get("stderr"))
            spread = f" ± {error:.4f}" if isinstance(error, float) else ""
            yield (*path, name), f"{_number(value)}{spread}"


def _label(block: str, path: Sequence[str]) -> str:
    """A row's name. Of names that are ours alone "_" becomes a space."""
    if block == "tasks":
        return " ".join(path)
    behind = path.index("by_kind") + 1 if "by_kind" in path else -1
    return " ".join(
        name if at == behind else name.replace("_", " ") for at, name in enumerate(path)
    )


def _stderr_name(name: str) -> str:
    """The harness writes its filter behind a comma: `acc,none`, `acc_stderr,none`."""
    figure, comma, rest = name.partition(",")
    return f"{figure}_stderr{comma}{rest}"


def _number(value: float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4f}"


def _difference(compared: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    node: Any = compared
    for name in path:
        node = node.get(name, {}) if "difference" not in node else node
    if "difference" not in node:
        return ["", ""]
    error, p_value = node["stderr"], node["p_value"]
    spread = "" if error is None else f" ± {error:.4f}"
    return [f"{node['difference']:+.4f}{spread}", "-" if p_value is None else f"{p_value:.2g}"]


def _units_note(results: Any, block: str) -> str:
    units = {result.get("stderr_over") for result in results}
    if block != "text" or not units & {"windows", "tokens"}:
        return ""
    what = "stretches of 1,024 bytes" if "windows" in units else "tokens"
    return f" There is one document, so the standard error is over its {what}."


def _markdown_text(cell: str) -> str:
    return html.escape(cell, quote=False).replace("|", "\\|").replace("\n", " ")
