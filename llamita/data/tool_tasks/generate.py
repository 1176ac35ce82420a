"""The set as JSONL: the same bytes for the same seed, on every machine and in every Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llamita.data.tool_tasks.conversation import conversation
from llamita.data.tool_tasks.lexicon import Lexicon
from llamita.data.tool_tasks.listed import WEIGHTS
from llamita.data.tool_tasks.wording import Split
from llamita.errors import DataError
from llamita.files.writing import replace_files

TOOLS = tuple(WEIGHTS)
DEFAULT_COUNT: dict[Split, int] = {"train": 15_000, "test": 500}
_MARK = b'{"kinds": ['


def tool_tasks(
    split: Split,
    count: int,
    seed: int = 0,
    tools: Sequence[str] = TOOLS,
    words: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Conversations with tools, `count` of them.

    A longer set begins with a shorter one of the same seed. Each is `kinds`, the kind of task of
    each of the person's messages, `messages`, and `tools`, absent where there are none.

    tools: those that may be listed; what asks for another is answered without. words: for the
    exercises of the training split, as `lexicon.words_of` gives those of a tokenizer.
    """
    lexicon = Lexicon.of(words)
    for index in range(count):
        yield conversation(split, f"{split} {seed} {index}", tools, lexicon)


def write_tool_tasks(
    path: Path,
    split: Split,
    count: int,
    seed: int = 0,
    tools: Sequence[str] = TOOLS,
    words: Sequence[str] = (),
) -> dict[str, int]:
    """Write them to a JSONL file; how many tasks of each kind there are.

    Raises:
        DataError: `count` is none, a tool is unknown, or something else lies at `path`.
    """
    for name in tools:
        if name not in TOOLS:
            raise DataError(
                f"the set has no tool {name!r}.", hint=f"There are: {', '.join(TOOLS)}."
            )
    if count < 1:
        raise DataError(f"{count} conversations are none.", hint="Ask for 1 or more.")
    _check_target(path)
    kinds: Counter[str] = Counter()
    with (
        replace_files(path) as folder,
        (folder / path.name).open("w", encoding="utf-8", newline="\n") as file,
    ):
        for chat in tool_tasks(split, count, seed, tools, words):
            kinds.update(chat["kinds"])
            file.write(json.dumps(chat, ensure_ascii=False) + "\n")
    return dict(sorted(kinds.items()))


def _check_target(path: Path) -> None:
    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_MARK)) == _MARK:
                return
    raise DataError(
        f"{path} is there and is no tool-use set; it stays as it is.", hint="Name another file."
    )
