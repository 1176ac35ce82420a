"""The tool-use set: exact, the same for a seed, and splits that share neither words nor values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from llamita.data.tool_tasks import arithmetic, conversion, exercise, notes, talk, timers
from llamita.data.tool_tasks.conversation import NO_TOOL
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.generate import tool_tasks, write_tool_tasks
from llamita.data.tool_tasks.lexicon import Lexicon, words_of
from llamita.data.tool_tasks.values import decimal_number, split_of, whole_number
from llamita.data.tool_tasks.wording import GRAM, SLOT, Split, grams
from llamita.data.tool_tasks.words import loose_words
from llamita.errors import DataError
from llamita.text.chats import read_chat
from llamita.tokenizer import Tokenizer
from llamita.tools import Toolbox

KINDS = {
    *("arithmetic", "conversion", "note", "note list", "note deletion", "timer", "labelled timer"),
    *("timer list", "talk", "in message", "tool absent"),
}
EXERCISES = {exercise.KIND, exercise.TRANSLATION}
SILENT = ("talk", "in message", "tool absent", *EXERCISES)
SIZES: dict[Split, int] = {"train": 3000, "test": 800}


@cache
def _set(split: Split) -> list[dict[str, Any]]:
    return list(tool_tasks(split, SIZES[split]))


def _requests(split: Split) -> list[str]:
    return [
        message["content"]
        for chat in _set(split)
        for message in chat["messages"]
        if message["role"] == "user"
    ]


def _calls(chat: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """What was asked, the tool called, its arguments, and the result."""
    messages = chat["messages"]
    for i, message in enumerate(messages):
        for call in message.get("tool_calls", []):
            function = call["function"]
            request, result = messages[i - 1]["content"], messages[i + 1]["content"]
            yield request, function["name"], json.loads(function["arguments"]), result


def _all_calls(split: Split) -> list[tuple[str, str, dict[str, Any], str]]:
    return [call for chat in _set(split) for call in _calls(chat)]


def test_a_seed_gives_the_same_bytes_and_a_longer_set_begins_with_a_shorter(tmp_path: Path) -> None:
    first, again, longer, other = (tmp_path / name for name in ("a", "b", "c", "d"))
    write_tool_tasks(first, "train", 20, seed=7)
    write_tool_tasks(again, "train", 20, seed=7)
    write_tool_tasks(longer, "train", 30, seed=7)
    write_tool_tasks(other, "train", 20, seed=8)
    assert first.read_bytes() == again.read_bytes()
    assert longer.read_bytes().startswith(first.read_bytes())
    assert other.read_bytes() != first.read_bytes()


def test_dice_fall_the_same_everywhere() -> None:
    dice = Dice("a seed")
    assert [dice.below(100) for _ in range(6)] == [39, 3, 76, 40, 87, 90]


def test_wordings_of_the_splits_share_no_five_words_in_a_row() -> None:
    found: dict[Split, set[tuple[str, ...]]] = {}
    said: dict[Split, set[str]] = {}
    for split in ("train", "test"):
        ways = [
            wording.lower()
            for module in (arithmetic, conversion, notes, timers, talk)
            for wording in module.wordings(split)
        ]
        ways += exercise.wordings() if split == "train" else []
        said[split] = set(ways)
        found[split] = set().union(*map(grams, ways))
    assert any(SLOT in gram for gram in found["train"])  # what stands for values counts as a word
    assert found["train"] & found["test"] == set()
    assert said["train"] & said["test"] == set()


@pytest.mark.parametrize("words", [r"\w+", r"\w+(?:[.']\w+)*", r"\S+"])
def test_what_people_say_in_the_splits_shares_no_five_words_in_a_row(words: str) -> None:
    def all_grams(split: Split) -> set[tuple[str, ...]]:
        return {
            tuple(found[i : i + GRAM])
            for request in _requests(split)
            for found in [re.findall(words, request.lower())]
            for i in range(len(found) - GRAM + 1)
        }

    assert all_grams("train") & all_grams("test") == set()
    assert {r.lower() for r in _requests("train")} & {r.lower() for r in _requests("test")} == set()


def test_values_of_arguments_belong_to_one_split() -> None:
    numbers: dict[Split, set[str]] = {"train": set(), "test": set()}
    texts: dict[Split, set[str]] = {"train": set(), "test": set()}
    pairs: dict[Split, set[frozenset[str]]] = {"train": set(), "test": set()}
    for split in ("train", "test"):
        for _, name, arguments, _ in _all_calls(split):
            for key, value in arguments.items():
                if key == "expression":
                    numbers[split] |= set(re.findall(r"[\d.]+", value))
                elif isinstance(value, int | float):
                    numbers[split].add(str(value))
                elif key in ("text", "label"):
                    texts[split].add(value)
            if name == "convert_units":
                pairs[split].add(frozenset((arguments["from_unit"], arguments["to_unit"])))
    for values in (numbers, texts, pairs):
        assert values["train"]
        assert values["test"]
        assert values["train"] & values["test"] == set()


def test_things_in_notes_and_labels_of_one_split_are_new_to_the_other() -> None:
    """Not only new mixtures of the same words."""
    words = {
        split: {
            word
            for _, _, arguments, _ in _all_calls(split)
            for key in ("text", "label")
            for word in str(arguments.get(key, "")).split()
        }
        for split in ("train", "test")
    }
    of_test = [
        str(arguments.get("text", arguments.get("label")))
        for _, name, arguments, _ in _all_calls("test")
        if name == "add_note" or "label" in arguments
    ]
    new = [text for text in of_test if not set(text.split()) <= words["train"]]
    assert len(new) > 0.6 * len(of_test)


def test_numbers_of_a_split_are_its_own() -> None:
    for split in ("train", "test"):
        dice = Dice(split)
        for _ in range(200):
            assert split_of(whole_number(split, dice)) == split
            assert split_of(decimal_number(split, dice)) == split


@pytest.mark.parametrize("split", ["train", "test"])
def test_calls_are_what_was_asked_for(split: Split) -> None:
    """All that has to be copied stands in the request, letter by letter."""
    for request, _, arguments, _ in _all_calls(split):
        for key, value in arguments.items():
            if key in ("text", "label"):
                assert value in request
            elif not key.endswith("_unit"):
                for number in re.findall(r"[\d.]+", str(value)):
                    assert number in re.findall(r"\d+(?:\.\d+)?", request)


@pytest.mark.parametrize("split", ["train", "test"])
def test_calls_fit_the_schemas_of_the_tools_listed(split: Split) -> None:
    for chat in _set(split)[:300]:
        schemas = {
            t["function"]["name"]: t["function"]["parameters"] for t in chat.get("tools", [])
        }
        for _, name, arguments, _ in _calls(chat):
            schema = {**schemas[name], "additionalProperties": False}
            jsonschema.Draft202012Validator(schema).validate(arguments)


def test_results_are_those_of_the_built_in_tools() -> None:
    plain = Toolbox.load("builtin")
    for chat in _set("test")[:100]:
        notes_and_timers = Toolbox.load("builtin:notes,timers")
        is_fresh = "note deletion" not in chat["kinds"]  # else there may be notes from before
        for _, name, arguments, result in _calls(chat):
            if name in ("calculator", "convert_units"):
                assert plain.run(name, arguments) == result
            elif is_fresh and name != "list_timers":
                assert notes_and_timers.run(name, arguments) == result


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_kind_of_task_is_there_and_called_where_it_should_be(split: Split) -> None:
    seen = set()
    for chat in _set(split):
        messages = chat["messages"]
        asked = [i for i, message in enumerate(messages) if message["role"] == "user"]
        assert len(asked) == len(chat["kinds"])
        for i, kind in zip(asked, chat["kinds"], strict=True):
            seen.add(kind)
            answer = messages[i + 1]
            assert bool(answer.get("tool_calls")) == (kind not in SILENT)
            if kind == "tool absent":
                assert answer["content"] == NO_TOOL
        assert messages[-1]["role"] == "assistant"
        assert messages[-1]["content"]
    assert seen == (KINDS | EXERCISES if split == "train" else KINDS)


def test_answers_say_the_result() -> None:
    for chat in _set("train")[:500]:
        messages = chat["messages"]
        for i, message in enumerate(messages):
            if message["role"] == "tool" and message["content"][0] not in "{[":
                assert message["content"] in messages[i + 1]["content"]


def test_no_conversation_says_an_internal_name_or_a_slot() -> None:
    for request in _requests("train") + _requests("test"):
        assert not re.search(r"[\[\]|{}_]", request)


def test_the_file_is_a_file_of_chats(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    counts = write_tool_tasks(path, "test", 40)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 40
    assert sum(counts.values()) == sum(len(line["kinds"]) for line in lines)
    for line in lines:
        assert read_chat(line, "a line") is not None


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "mine"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no tool-use set"):
        write_tool_tasks(path, "train", 3)
    assert path.read_text(encoding="utf-8") == '{"text": "mine"}\n'
    write_tool_tasks(tmp_path / "own.jsonl", "train", 3)
    write_tool_tasks(tmp_path / "own.jsonl", "test", 3)  # an earlier set of its own is


def test_no_conversations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="0 conversations"):
        write_tool_tasks(tmp_path / "none.jsonl", "train", 0)
    assert list(tmp_path.iterdir()) == []


def test_tools_that_are_not_wanted_are_neither_listed_nor_called(tmp_path: Path) -> None:
    for chat in tool_tasks("train", 60, tools=["calculator"]):
        assert {tool["function"]["name"] for tool in chat.get("tools", [])} <= {"calculator"}
        assert {name for _, name, _, _ in _calls(chat)} <= {"calculator"}
    with pytest.raises(DataError, match="'weather'"):
        write_tool_tasks(tmp_path / "tasks.jsonl", "train", 3, tools=["weather"])


def test_exercises_have_the_words_of_a_tokenizer() -> None:
    words = ["zygote", "quorum", "umbrella", "Umbrella", "near"]
    lexicon = Lexicon.of(words)
    assert lexicon.own == ("zygote", "quorum", "near")  # an umbrella is a thing of the test split
    chats = tool_tasks("train", 80, words=words)
    said = " ".join(message["content"] for chat in chats for message in chat["messages"])
    assert len(re.findall(r"\bzygote\b", said)) > 5
    assert re.search(r"\bquorum[a-z]", said)  # and spliced, for the pieces that follow a word
    plain = list(tool_tasks("test", 20))
    assert list(tool_tasks("test", 20, words=words)) == plain


def test_words_of_a_tokenizer_are_its_tokens_behind_a_space() -> None:
    class Vocabulary:
        tokens = (
            b" near",
            b"near",
            b" a",
            b" of",
            b" x1",
            "\u00a0".encode(),
            b"\xff",
            " så".encode(),
        )
        vocab_size = len(tokens)

        def token_bytes(self, token_id: int) -> bytes:
            return self.tokens[token_id]

    assert words_of(cast(Tokenizer, Vocabulary())) == ["near", "of", "så"]


def test_exercises_teach_no_unit_pair_of_the_test_split() -> None:
    held_out = {frozenset(pair) for pair in conversion.unit_pairs("test")}
    answers = [
        message["content"]
        for chat in tool_tasks("train", 3000)
        if "translation" in chat["kinds"]
        for message in chat["messages"]
        if message["role"] == "assistant"
    ]
    pairs = {frozenset(answer.split(", ")) for answer in answers}
    assert len([pair for pair in pairs if len(pair) == 2]) > 50
    assert pairs & held_out == set()


def test_the_number_of_an_exercise_is_the_only_one() -> None:
    numbers = {"two", "nine", "ten", "twelve", "hundred"}
    assert numbers & set(loose_words())  # so that they might be among the others
    tasks = [exercise._odd(Dice(f"{seed}"), Lexicon()) for seed in range(6000)]
    asked = [t.request.lower() for t in tasks if re.search(r"\bnumber\b", t.request.lower())]
    assert len(asked) > 1000
    for request in asked:
        assert numbers & set(re.findall(r"\w+", request)) == set(), request
