"""Which conversations a run learns from: those that fit, and those that are not held out."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.data.encoding import DocumentEncoder, Fit
from llamita.data.folder import DataFolder
from llamita.data.held_out import fraction_near, is_held_out
from llamita.data.manifest import Manifest
from llamita.errors import DataError
from llamita.text.chats import Chat
from llamita.text.documents import Document
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_ready import ready_for_chats
from llamita.training.finetuning.chat_data import Chats, context_of, prepare_chats
from tests.training.finetuning.conftest import chats, write
from tests.training.finetuning.runs import Said

CONFIG: Any = type("Config", (), {"max_position_embeddings": 1024})


@pytest.fixture(scope="module")
def tokenizer(plain_tokenizer: Tokenizer) -> Tokenizer:
    return ready_for_chats(plain_tokenizer)


def _long(turns: int, n: int = 0) -> dict[str, Any]:
    messages = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"how many stones in box {turn} {n}?"})
        messages.append({"role": "assistant", "content": f"There are {turn}."})
    return {"messages": messages}


def _prepare(
    out: Path, tokenizer: Tokenizer, lines: list[Any], **settings: Any
) -> tuple[Manifest, list[str]]:
    path = write(out.parent / f"{out.name}.jsonl", lines)
    said = Said()
    wanted = Chats([path], **settings)
    folder = prepare_chats(wanted, out, tokenizer, CONFIG, said)
    return folder.manifest, said.lines


def test_too_long_conversations_are_dropped_and_counted(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lines = [*chats(20), _long(9)]
    manifest, said = _prepare(tmp_path / "run", tokenizer, lines, context=80)
    assert (manifest.chats, manifest.dropped_chats, manifest.cut_chats) == (20, 1, 0)
    assert any("1 conversations left out, longer than 80 tokens" in line for line in said)


def test_or_cut_behind_the_last_whole_turn_that_fits(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = [*chats(20), _long(9)]
    manifest, said = _prepare(tmp_path / "run", tokenizer, lines, context=80, long="cut")
    assert (manifest.chats, manifest.dropped_chats, manifest.cut_chats) == (21, 0, 1)
    assert any("cut behind the last whole turn" in line for line in said)


@given(turns=st.integers(1, 8), longest=st.integers(5, 300))
def test_what_is_left_of_a_conversation_ends_with_a_turn_and_no_more_would_fit(
    turns: int, longest: int
) -> None:
    tokenizer = _READY[0]
    chat_format = ChatFormat.of(tokenizer)
    chat = _long(turns)["messages"]
    needed: list[int] = []
    encoder = DocumentEncoder(
        tokenizer, "assistant", Fit(longest, "cut"), lambda _, size: needed.append(size)
    )
    found = list(encoder.encode(iter([Document("", "x", Chat(chat))])))
    prefixes = [chat_format.encode(chat[:end]) for end in range(2, len(chat) + 1, 2)]
    fitting = [ids for ids in prefixes if len(ids) <= longest]
    if not fitting:
        assert (found, encoder.dropped, needed) == ([], 1, [len(prefixes[0])])
        return
    [(_, encoded)] = found
    # The separator in front, which the tokenizer's BOS is, stands in the file already.
    assert encoded.token_ids == fitting[-1][1:]
    assert encoded.learned is not None
    assert encoded.learned[-2:] == [True, False]
    assert encoder.cut == (len(fitting) < len(prefixes))


_READY: list[Tokenizer] = []


@pytest.fixture(autouse=True, scope="module")
def _ready(tokenizer: Tokenizer) -> None:
    _READY.append(tokenizer)


@pytest.mark.parametrize("long", ["drop", "cut"])
def test_where_nothing_fits_the_error_says_what_would(
    long: Any, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="longer than the context of 8 tokens; the shortest") as e:
        _prepare(tmp_path / "run", tokenizer, chats(), context=8, long=long)
    hint = e.value.hint or ""
    assert ("--long cut" in hint) == (long == "drop")
    with pytest.raises(DataError, match="longer than the context of"):
        _prepare(tmp_path / "run", tokenizer, chats(), context=_named(hint) - 1, long=long)
    manifest, _ = _prepare(tmp_path / "run", tokenizer, chats(), context=_named(hint), long=long)
    assert manifest.chats
    shutil.rmtree(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _named(hint: str) -> int:
    """The context that a hint names."""
    found = re.search(r"--context (\d+)", hint)
    assert found
    return int(found[1])


def test_what_is_too_long_is_told_of_the_side_that_lacks_chats(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    val = write(tmp_path / "val.jsonl", [_long(9)])
    lines = [*chats(4), _long(5)]
    with pytest.raises(DataError, match=r"every chat held out .*; the shortest of the 1 has") as e:
        _prepare(tmp_path / "run", tokenizer, lines, val=[val], context=80)
    whole = len(ChatFormat.of(tokenizer).encode(_long(9)["messages"]))
    assert _named(e.value.hint or "") == whole


def test_the_split_of_its_own_is_that_of_cleaned_chats_which_fit(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for number in range(40):
        # Cleaning takes the spaces at the ends of lines away, and with them the place of a chat.
        lines = chats(3)
        for chat in lines:
            chat["messages"][0]["content"] += f" {number}  \nand? \x00"
        manifest, said = _prepare(tmp_path / f"run{number}", tokenizer, lines)
        assert manifest.val.documents in (1, 2), said
    for number in range(12):
        lines = [*chats(3), *(_long(9, n) for n in range(12 * number, 12 * number + 12))]
        manifest, said = _prepare(tmp_path / f"long{number}", tokenizer, lines, context=80)
        assert manifest.val.documents
        assert manifest.train.documents + manifest.val.documents == 3
        _, said = _prepare(tmp_path / f"long{number}", tokenizer, lines, context=80)
        assert any("already prepared" in line for line in said)
    manifest, said = _prepare(tmp_path / "one", tokenizer, [*chats(1), _long(9)], context=80)
    assert (manifest.train.documents, manifest.val.documents) == (1, 0)
    assert any("nothing is held out" in line for line in said)


REASONING_DROPPED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("long", ["drop", "cut"])
def test_a_chat_whose_turns_are_written_otherwise_later_is_one_example_for_each_answer(
    long: Any, plain_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tokenizer = plain_tokenizer.with_chat_template(REASONING_DROPPED)
    lines = [*chats(6), _long(9)]
    manifest, said = _prepare(tmp_path / "run", tokenizer, lines, context=120, long=long)
    assert any(f"{manifest.split_chats} conversations whose earlier turns" in x for x in said)
    folder, chat_format = DataFolder.open(tmp_path / "run" / "data"), ChatFormat.of(tokenizer)
    expected = []
    for chat in lines:
        messages = chat["messages"]
        examples = [
            chat_format.encode_with_spans(messages[:end], last_turn_only=True)
            for end in range(2, len(messages) + 1, 2)
        ]
        fitting = [one for one in examples if len(one.token_ids) <= 120]
        if long == "cut" or len(fitting) == len(examples):
            expected += [(one.token_ids[1:], one.assistant_mask[1:]) for one in fitting]
    found = []
    for split in ("train", "val"):
        data = folder.dataset(split)
        starts, lengths = data.documents(tokenizer.separator_id)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            # From the separator in front on, which is the BOS of a chat.
            ids, mask = data.read(start, length), data.read_mask(start, length)
            assert mask is not None
            found.append((ids.tolist()[1:], [bool(x) for x in mask][1:]))
    assert sorted(found) == sorted(expected)
    assert manifest.split_chats == manifest.chats == (7 if long == "cut" else 6)
    assert (manifest.dropped_chats, manifest.cut_chats) == ((0, 1) if long == "cut" else (1, 0))
    held = (tmp_path / "run" / "data" / "validation_chats.jsonl").read_text().splitlines()
    assert len(set(held)) == len(held)


def test_rows_are_as_long_as_the_longest_conversation_needs(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = write(tmp_path / "chats.jsonl", [*chats(), _long(9)])
    wanted = Chats([path])
    folder = prepare_chats(wanted, tmp_path / "run", tokenizer, CONFIG, Said())
    longest = len(ChatFormat.of(tokenizer).encode(_long(9)["messages"]))
    assert longest <= context_of(wanted, folder, CONFIG) < longest + 32
    assert context_of(Chats([path], context=100), folder, CONFIG) == 100


def test_chats_to_validate_on_are_not_trained_on(tokenizer: Tokenizer, tmp_path: Path) -> None:
    val = write(tmp_path / "val.jsonl", chats(8)[4:])
    manifest, said = _prepare(tmp_path / "run", tokenizer, chats(20), val=[val])
    assert (manifest.train.documents, manifest.val.documents) == (16, 4)
    assert manifest.also_held_out == 4
    assert any("4 conversations are held out too" in line for line in said)
    held = (tmp_path / "run" / "data" / "validation_chats.jsonl").read_text().splitlines()
    assert [json.loads(line)["messages"] for line in held] == [c["messages"] for c in chats(8)[4:]]
    # The same files the other way round are other data.
    with pytest.raises(DataError, match="other settings"):
        prepare_chats(Chats([val], val=[tmp_path / "run.jsonl"]), tmp_path / "run", tokenizer,
                      CONFIG, Said())  # fmt: skip
    again = Said()
    wanted = Chats([tmp_path / "run.jsonl"], val=[val])
    prepare_chats(wanted, tmp_path / "run", tokenizer, CONFIG, again)
    assert any("already prepared" in line for line in again.lines)


def test_a_file_cannot_be_both_learned_and_held_out(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", chats())
    with pytest.raises(DataError, match="both to be trained on and held out"):
        _prepare(tmp_path / "run", tokenizer, chats(), val=[path])


@pytest.mark.parametrize(("count", "held"), [(1, 0), (2, 1), (3, 1)])
def test_of_few_conversations_one_is_held_out_if_there_are_two(
    count: int, held: int, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    manifest, _ = _prepare(tmp_path / "run", tokenizer, chats(count))
    assert manifest.val.documents == held
    assert manifest.train.documents == count - held


@given(
    texts=st.lists(st.text(max_size=5), min_size=1, max_size=12),
    wanted=st.floats(0.001, 0.999),
)
def test_the_fraction_leaves_something_on_both_sides(texts: list[str], wanted: float) -> None:
    fraction = fraction_near(texts, wanted)
    sides = {is_held_out(text, fraction) for text in texts}
    assert sides == ({True, False} if len(set(texts)) > 1 else {False})
    if {is_held_out(text, wanted) for text in texts} == {True, False}:
        assert fraction == wanted


def test_a_message_of_weight_0_is_read_and_not_learned(tokenizer: Tokenizer) -> None:
    chat = chats(1)[0]["messages"]
    chat[1] = {**chat[1], "weight": 0}
    encoded = ChatFormat.of(tokenizer).encode_with_spans(chat)
    said = [i for i, told in zip(encoded.token_ids, encoded.assistant_mask, strict=True) if told]
    assert tokenizer.decode(said, skip_special_tokens=False) == "1.<|im_end|>"


def test_without_a_token_that_ends_turns_answers_are_still_cut_behind_their_end(
    plain_tokenizer: Tokenizer,
) -> None:
    template = (
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    tokenizer = ready_for_chats(plain_tokenizer.with_chat_template(template))
    whole = ChatFormat.of(tokenizer).encode(_long(3)["messages"])
    for longest in range(40, len(whole)):
        encoder = DocumentEncoder(tokenizer, "assistant", Fit(longest, "cut"))
        for _, encoded in encoder.encode(iter([Document("", "x", Chat(_long(3)["messages"]))])):
            text = tokenizer.decode(encoded.token_ids)
            assert text.endswith((".\n", "."))
            assert text.rpartition("assistant: ")[2].startswith("There are")


def test_hints_name_options_that_fine_tuning_has(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="side of the split") as error:
        _prepare(tmp_path / "run", tokenizer, chats(3), val_fraction=1e-9)
    assert "--max-document-chars" not in (error.value.hint or "")
    assert "--val-fraction" in (error.value.hint or "")


def test_reasoning_without_a_place_and_calls_of_unknown_tools_are_counted(
    plain_tokenizer: Tokenizer, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lines = chats(4)
    lines[0]["messages"][1]["reasoning_content"] = "why, 7"
    lines[1]["messages"][1] = {"role": "assistant", "thinking": "there are 7"}
    call = {"type": "function", "function": {"name": "count", "arguments": {}}}
    lines[2]["messages"][1] = {"role": "assistant", "content": "", "tool_calls": [call]}
    lines[3] = {**lines[2], "tools": [{"name": "count"}]}
    manifest, said = _prepare(tmp_path / "run", tokenizer, lines, val_fraction=0.0)
    assert (manifest.unreasoned_chats, manifest.undeclared_chats) == (2, 1)
    assert any("2 conversations lose their reasoning" in line for line in said)
    assert any("1 conversations call tools" in line for line in said)
    data = DataFolder.open(tmp_path / "run" / "data").dataset("train")
    mask = data.read_mask(0, data.tokens)
    ids = data.read(0, data.tokens)
    assert mask is not None
    ends = ids[mask.astype(bool)] == tokenizer.special_tokens["<|im_end|>"]
    assert int(ends.sum()) == 7  # the turn that would have been empty is not learned
    only = {"messages": lines[1]["messages"][:2]}
    with pytest.raises(DataError, match="the assistant only reasons"):
        _prepare(tmp_path / "only", tokenizer, [only])
    # A template that knows the blocks of a content alone gets it as one.
    inline = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# </think> #}"
    )
    able = plain_tokenizer.with_chat_template(inline)
    manifest, said = _prepare(tmp_path / "inline", able, lines[:2], val_fraction=0.0)
    assert manifest.unreasoned_chats == 0
    data = DataFolder.open(tmp_path / "inline" / "data").dataset("train")
    assert "<think>\nthere are 7\n</think>" in able.decode(data.read(0, data.tokens).tolist())
