"""The demo's last step: the model learns to chat with tools, and answers through the calculator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llamita.cli.prepare import PhaseBars
from llamita.cli.progress import for_terminal, say

if TYPE_CHECKING:
    from llamita.training.finetuning.finetune import Prepared

CHAT_FORMAT = "chatml-signatures"
TASKS_NAME = "tool-tasks.jsonl"
TOKENIZER_TASKS_NAME = "tokenizer-chats.jsonl"
QUESTION = "What is 47 times 86?"
TOOLBOX = "builtin:calculator"

# Rows are short, as attention takes much of a small model's time; a few longer conversations are
# left out in training, and read all the same when it chats.
_CONTEXT, _POSITIONS = 384, 512
_HELD_OUT = 100  # conversations
_FOR_TOKENIZER = 3_000
# What two cores of 2024 read in a minute; a set too small is read again, one too large in part.
_CONVERSATIONS_A_MINUTE = 6_000
# A small model that has seen little learns a new trade, so it is trained as one that begins. `eps`
# keeps tokens that no conversation has where they are: with less, Adam makes whole steps of their
# tiny gradients, and words that are new in a request cannot be copied (docs/experiments.md).
SETTINGS = (
    "optimizer.name=muon",
    "optimizer.learning_rate=0.015",
    "optimizer.weight_decay=0.01",
    "optimizer.eps=1e-5",
    "schedule.kind=wsd",
    "schedule.decay_fraction=0.95",
    "batch.sequences=8",
    "batch.accumulation=1",
    "watch.validations=4",
    "watch.sample_tokens=0",
)


def tokenizer_chats(data: Path, wanted: bool) -> list[Path]:
    """What the demo's tokenizer learns from beside the text: conversations of the tool-use set, as
    far as they are `wanted`. DATA that is there stays as it was made.
    """
    from llamita.data.existing import is_prepared
    from llamita.data.manifest import Manifest
    from llamita.data.tool_tasks.generate import write_tool_tasks

    if is_prepared(data):
        settings = Manifest.load(data).settings
        wanted = settings is not None and settings.tokenizer_also is not None
    if not wanted:
        return []
    path = data.parent / TOKENIZER_TASKS_NAME
    if not path.exists():
        say(f"writing {_FOR_TOKENIZER:,} conversations with tools for the tokenizer")
        write_tool_tasks(path, "train", _FOR_TOKENIZER)
    return [path]


def prepare_tool_chats(
    model: Path,
    out: Path,
    minutes: float,
    *,
    seed: int = 0,
    tools: Sequence[str] | None = None,
) -> Prepared:
    """Conversations of the tool-use set, made ready for a model to learn from them for so long.

    tools: those that they list; None: all.
    """
    from llamita.data.tool_tasks.generate import TOOLS, write_tool_tasks
    from llamita.formats.detect import load_checkpoint
    from llamita.training.finetuning.chat_data import Chats
    from llamita.training.finetuning.finetune import prepare_finetuning, recipe_for

    tasks, held_out = out.parent / TASKS_NAME, out.parent / f"held-out-{TASKS_NAME}"
    count = max(200, round(_CONVERSATIONS_A_MINUTE * minutes))
    say(f"writing {count:,} conversations with tools")
    write_tool_tasks(tasks, "train", count, seed, tools or TOOLS)
    write_tool_tasks(held_out, "train", _HELD_OUT, seed + 1, tools or TOOLS)
    settings = list(SETTINGS)
    if load_checkpoint(model).config.max_position_embeddings < _POSITIONS:
        settings.append(f"model.max_position_embeddings={_POSITIONS}")
    recipe = recipe_for(model, None, settings, {"length": {"minutes": minutes}})
    chats = Chats([tasks], [held_out], context=_CONTEXT)
    with PhaseBars() as bars:
        return prepare_finetuning(model, chats, out, recipe, chat_format=CHAT_FORMAT, reporter=bars)


def learn_tools(model: Path, out: Path, minutes: float) -> Path:
    """Fine-tune the demo's model on the calculator's part of the tool-use set; where it is then.

    All of the set takes five minutes: `benchmarks/tool_calls.py`.
    """
    from llamita.cli.training_progress import training_observer
    from llamita.formats.detect import BEST

    prepared = prepare_tool_chats(model, out, minutes, tools=["calculator"])
    with training_observer() as observer:
        result = prepared.train(observer)
    return result.summary.run / BEST


def print_chat(model: Path) -> None:
    """Ask one question, and show the call, its result and the answer."""
    import llamita
    from llamita.inference.tool_loop import call_of, run_tools
    from llamita.tools import Toolbox

    lm = llamita.load(model)
    question = {"role": "user", "content": QUESTION}
    print("\n--- a chat with the calculator ---")
    print(f"you:        {QUESTION}")
    for message in run_tools(lm, [question], Toolbox.load(TOOLBOX), temperature=0, max_steps=2):
        for call in message.get("tool_calls", ()):
            name, arguments = call_of(call)
            print(f"  calls     {name} {for_terminal(json.dumps(arguments, ensure_ascii=False))}")
        if message["role"] == "tool":
            print(f"  result    {for_terminal(message['content'])}")
        elif message.get("content"):
            print(f"model:      {for_terminal(message['content'])}")
