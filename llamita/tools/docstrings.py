"""What a docstring says of a function and of its parameters: Google's, NumPy's and reST's style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

_GOOGLE = re.compile(r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*")
_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Returns?|"
    r"Yields?|Raises|Examples?|Notes?|Attributes|See Also|References|Warnings?|Warns|Todo):\s*"
)
_GOOGLE_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_UNDERLINE = re.compile(r"-{3,}\s*")
_REST = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:\s][^:]*\s)?(\w+)\s*:\s*(.*)"
)
_REST_FIELD = re.compile(r":\w+[^:]*:")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """What the function does, a line a paragraph, and what each parameter is, by its name."""
    lines = inspect.cleandoc(text or "").splitlines()
    end = next((i for i in range(len(lines)) if _ends_description(lines, i)), len(lines))
    parameters = {**_rest(lines), **_google(lines), **_numpy(lines)}
    return _paragraphs(lines[:end]), {name: said for name, said in parameters.items() if said}


def _ends_description(lines: list[str], place: int) -> bool:
    if _SECTION.fullmatch(lines[place]) or _REST_FIELD.match(lines[place]):
        return True
    return _is_underlined(lines, place)


def _is_underlined(lines: list[str], place: int) -> bool:
    following = lines[place + 1] if place + 1 < len(lines) else ""
    return bool(lines[place].strip()) and _UNDERLINE.fullmatch(following) is not None


def _google(lines: list[str]) -> dict[str, str]:
    found = {}
    for start, line in enumerate(lines):
        if not _GOOGLE.fullmatch(line):
            continue
        block = []
        for following in lines[start + 1 :]:
            if following and not following[0].isspace():
                break
            block.append(following)
        for head, rest in _entries(inspect.cleandoc("\n" + "\n".join(block)).splitlines()):
            entry = _GOOGLE_ENTRY.fullmatch(head)
            if entry:
                found[entry[1].lstrip("*")] = _joined([entry[2], *rest])
    return found


def _numpy(lines: list[str]) -> dict[str, str]:
    found = {}
    for start, line in enumerate(lines):
        if line.strip() not in ("Parameters", "Other Parameters"):
            continue
        if not _is_underlined(lines, start):
            continue
        block = []
        for place in range(start + 2, len(lines)):
            if _is_underlined(lines, place):
                break
            block.append(lines[place])
        for head, rest in _entries(block):
            entry = _NUMPY_ENTRY.fullmatch(head)
            for name in entry[1].split(",") if entry else ():
                found[name.strip().lstrip("*")] = _joined(rest)
    return found


def _rest(lines: list[str]) -> dict[str, str]:
    found = {}
    for start, line in enumerate(lines):
        entry = _REST.match(line)
        if not entry:
            continue
        said = [entry[2]]
        for following in lines[start + 1 :]:
            if not following.strip() or _REST_FIELD.match(following):
                break
            said.append(following)
        found[entry[1]] = _joined(said)
    return found


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each line at the margin with the indented ones below it."""
    head: str | None = None
    rest: list[str] = []
    for line in lines:
        if line and not line[0].isspace():
            if head is not None:
                yield head, rest
            head, rest = line, []
        elif head is not None:
            rest.append(line)
    if head is not None:
        yield head, rest


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _paragraphs(lines: list[str]) -> str:
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    return "\n".join(_joined(paragraph) for paragraph in paragraphs if paragraph)
