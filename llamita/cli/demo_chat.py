"""The demo's last step: the model learns to chat with tools, and answers through the calculator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llamita.cli.prepare import PhaseBars
from llamita.cli.progress import for_terminal, say
from llamita.errors import DataError, TokenizerError, TrainingError

if TYPE_CHECKING:
    from llamita.tokenizer import Tokenizer
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
_TRIED = 50  # in the tokenizer, before anything is learned
# What two cores of 2024 read in a minute; a set too small is read again, one too large in part.
_CONVERSATIONS_A_MINUTE = 6_000
# After fewer the calculator's formulas come out wrong; minutes would be fewer on a slower machine.
_CALCULATOR_STEPS = 700
_CALCULATOR_CONVERSATIONS = 12_000
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
    minutes: float | None,
    *,
    seed: int = 0,
    tools: Sequence[str] | None = None,
) -> Prepared:
    """Conversations of the tool-use set, made ready for a model to learn from them.

    minutes: for so long; None: for as many steps as the calculator takes. tools: those that they
    list; None: all.
    """
    from llamita.data.tool_tasks.generate import TOOLS, write_tool_tasks
    from llamita.data.tool_tasks.lexicon import words_of
    from llamita.tokenizer.load import tokenizer_of

    tasks, held_out = _task_files(out)
    count = _CALCULATOR_CONVERSATIONS
    if minutes is not None:
        count = max(200, round(_CONVERSATIONS_A_MINUTE * minutes))
    say(f"writing {count:,} conversations with tools")
    words = words_of(tokenizer_of(model))
    write_tool_tasks(tasks, "train", count, seed, tools or TOOLS, words)
    write_tool_tasks(held_out, "train", _HELD_OUT, seed + 1, tools or TOOLS, words)
    return _prepare_written(model, out, minutes)


def _prepare_written(model: Path, out: Path, minutes: float | None) -> Prepared:
    """Make the conversations that are written ready for the model, in its own format if it has
    one."""
    from llamita.formats.detect import load_checkpoint
    from llamita.tokenizer.load import tokenizer_of
    from llamita.training.finetuning.chat_data import Chats
    from llamita.training.finetuning.finetune import prepare_finetuning, recipe_for

    settings = list(SETTINGS)
    if load_checkpoint(model).config.max_position_embeddings < _POSITIONS:
        settings.append(f"model.max_position_embeddings={_POSITIONS}")
    recipe = recipe_for(model, None, settings, {"length": _length(minutes)})
    tasks, held_out = _task_files(out)
    chats = Chats([tasks], [held_out], context=_CONTEXT)
    form = _format_for(tokenizer_of(model))
    with PhaseBars() as bars:
        return prepare_finetuning(model, chats, out, recipe, chat_format=form, reporter=bars)


def _task_files(out: Path) -> tuple[Path, Path]:
    """What the run in `out` learns from and is validated on."""
    return out.parent / TASKS_NAME, out.parent / f"held-out-{TASKS_NAME}"


def _length(minutes: float | None) -> dict[str, float]:
    return {"steps": _CALCULATOR_STEPS} if minutes is None else {"minutes": minutes}


def _format_for(tokenizer: Tokenizer) -> str | None:
    """None: the chat template that the tokenizer brings."""
    return CHAT_FORMAT if tokenizer.chat_template is None else None


def check_begun(out: Path, minutes: float | None) -> None:
    """Refuse to go on with the chat run in `out` for another time than it was begun for.

    Raises:
        TrainingError: it was begun for another, which is named.
    """
    from llamita.formats.detect import RECIPE
    from llamita.training.checkpointing.checkpoints import has_checkpoints
    from llamita.training.records.manifest import RunManifest

    if not (out / RECIPE).exists() or not has_checkpoints(out / "checkpoints"):
        return
    begun = RunManifest.load(out).requested.get("length", {}).get("minutes")
    if begun != minutes:
        former = "left out" if begun is None else f"{begun:g}"
        raise TrainingError(
            f"{out} was begun with --chat-minutes {former}.",
            hint="Say so again to go on with it, or choose another folder with --out.",
        )


def check_tokenizer(data: Path) -> None:
    """Refuse a tokenizer in which the chats cannot be written, or are too long, before the model
    learns its tokens.

    Raises:
        TokenizerError: its chat template knows no tools, or no call fits into a row.
    """
    from llamita.data.encoding import DocumentEncoder, Fit
    from llamita.data.tool_tasks.generate import tool_tasks
    from llamita.text.chats import Chat
    from llamita.text.documents import Document
    from llamita.tokenizer import load_tokenizer
    from llamita.tokenizer.chat_ready import ready_for_chats

    hint = "Leave chats out with --chat-minutes 0, or give another --tokenizer and another --out."
    chats = [
        Chat(line["messages"], line.get("tools"))
        for line in tool_tasks("train", _TRIED, tools=["calculator"])
        if any("tool_calls" in message for message in line["messages"])
    ]
    tokenizer = load_tokenizer(data)
    try:
        able = ready_for_chats(tokenizer, _format_for(tokenizer))
        encoder = DocumentEncoder(able, "assistant", Fit(_CONTEXT))
        documents = (Document(chat.text, "a chat with the calculator", chat) for chat in chats)
        fits = any(True for _ in encoder.encode(documents))
    except (DataError, TokenizerError) as error:
        raise TokenizerError(error.message, hint=hint) from error
    if not fits:
        raise TokenizerError(
            f"chats that call the calculator take more than {_CONTEXT} tokens, the length of a "
            "row, with this tokenizer and its chat template.",
            hint=hint,
        )


def learn_tools(model: Path, out: Path, minutes: float | None) -> Path:
    """Fine-tune the demo's model on the calculator's part of the tool-use set; where it is then.

    minutes: None: as long as it takes. All of the set takes five minutes:
    `benchmarks/tool_calls.py`.
    """
    from llamita.cli.training_progress import training_observer
    from llamita.formats.detect import BEST

    if _is_prepared_from_written(out):
        prepared = _prepare_written(model, out, minutes)
    else:
        prepared = prepare_tool_chats(model, out, minutes, tools=["calculator"])
    with training_observer() as observer:
        result = prepared.train(observer)
    return result.summary.run / BEST


def _is_prepared_from_written(out: Path) -> bool:
    """Whether the conversations that are written are those that the run in `out` has as DATA: it
    goes on with them, whatever would be written today."""
    from llamita.data.existing import is_prepared
    from llamita.data.manifest import Manifest
    from llamita.files import sha256_file
    from llamita.training.finetuning.chat_data import DATA_NAME

    if not is_prepared(out / DATA_NAME):
        return False
    read = {source.sha256 for source in Manifest.load(out / DATA_NAME).sources}
    return all(path.is_file() and sha256_file(path) in read for path in _task_files(out))


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
