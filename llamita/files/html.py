"""Pages and small pieces of HTML, with strangers' text made harmless.

A page is one file that needs nothing else, and it forbids itself scripts and the network.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from llamita.files.page_style import STYLE

LONGEST_TEXT = 2000
LONGEST_FILE = 20_000

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, body: str, mark: str) -> str:
    """A whole page of `body`, which is HTML; `mark` is HTML of the head that says who made it."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{mark}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def text(raw: str) -> str:
    """Escaped; what has no shape of its own, or cannot be encoded, becomes "·"."""
    return html.escape("".join(c if c in "\n\t" or not _is_odd(ord(c)) else "·" for c in raw))


def cut(raw: str, longest: int = LONGEST_TEXT) -> str:
    """The beginning of a long text, and how much there is beyond it."""
    if len(raw) <= longest:
        return raw
    return f"{raw[:longest]}… ({len(raw) - longest:,} more characters)"


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a row."""
    body = "".join(
        f'<tr><th scope="row">{text(cut(name, 200))}</th><td>{text(cut(value))}</td></tr>'
        for name, value in rows
    )
    return f"<table>{body}</table>"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their names."""
    names = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{text(cut(cell, 200))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f'<table class="grid"><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>'


def details(title: str, body: str, *, is_open: bool = False) -> str:
    """A part that can be opened; `body` is HTML."""
    return f"<details{' open' if is_open else ''}><summary>{text(title)}</summary>{body}</details>"


def file_text(raw: str | None) -> str:
    """A file as it stands."""
    return "<p>Not found.</p>" if raw is None else f"<pre>{text(cut(raw, LONGEST_FILE))}</pre>"


def _is_odd(code: int) -> bool:
    """Control characters, halves of surrogate pairs, and what is no character."""
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE
