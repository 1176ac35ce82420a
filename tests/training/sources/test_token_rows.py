"""Tables for another vocabulary: what keeps its row, and what begins as a mean of which rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.training.sources.token_rows import TokenRows, plan_rows, relate
from tests.training.tokenizers import with_added

TEXTS = [
    "the llama walks home slowly when rain falls near our river, past gardens and old stone walls",
    "a tree sees the rain; who would blame the children for running out to meet the thunder?",
] * 20
OTHERS = ["rivers and llamas fall near the trees, where quiet farmers keep their brown horses"] * 20


def _trained(spec: str, texts: list[str] | None = None) -> Tokenizer:
    return train_tokenizer(texts or TEXTS, spec, seed=0)


def _table(rows: int, width: int = 3) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0))


def test_the_same_tokenizer_changes_nothing_padding_included() -> None:
    tokenizer = _trained("bpe:280")
    plan = plan_rows(tokenizer, _trained("bpe:280"))
    table = _table(tokenizer.vocab_size + 8)
    assert plan.relation == "same"
    assert torch.equal(plan.apply(table), table)


def test_the_same_ids_under_another_definition_are_the_same(tmp_path: Path) -> None:
    tokenizer = _trained("bpe:280")
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    definition = json.loads(path.read_text(encoding="utf-8"))
    definition["model"]["ignore_merges"] = not definition["model"].get("ignore_merges", False)
    path.write_text(json.dumps(definition), encoding="utf-8")
    other = load_tokenizer(tmp_path)
    assert other.fingerprint != tokenizer.fingerprint
    assert relate(tokenizer, other) == "same"


def test_added_tokens_begin_as_the_mean_of_their_pieces_or_of_all(tmp_path: Path) -> None:
    old = _trained("bpe:280")
    new = with_added(old, tmp_path, ("walks home", False), ("<|turn|>", True))
    plan = plan_rows(old, new)
    assert plan.relation == "extended"
    assert (plan.carried, plan.from_pieces, plan.from_mean) == (old.vocab_size, 1, 1)
    table = _table(old.vocab_size)
    grown = plan.apply(table)
    assert torch.equal(grown[: old.vocab_size], table)
    pieces = old.encode("walks home")
    assert len(pieces) > 1
    torch.testing.assert_close(grown[old.vocab_size], table[pieces].mean(0))
    torch.testing.assert_close(grown[old.vocab_size + 1], table.mean(0))


def test_added_tokens_go_into_the_padding_where_there_is_some(tmp_path: Path) -> None:
    old = _trained("bpe:280")
    new = with_added(old, tmp_path, ("<|a|>", True), ("<|b|>", True))
    plan, table = plan_rows(old, new), _table(old.vocab_size + 5)
    grown = plan.apply(table)
    assert grown.shape == table.shape
    mean = table[: old.vocab_size].mean(0)
    torch.testing.assert_close(grown[old.vocab_size : old.vocab_size + 2], mean.expand(2, 3))
    assert torch.equal(grown[old.vocab_size + 2 :], table[old.vocab_size + 2 :])
    assert torch.equal(grown[: old.vocab_size], table[: old.vocab_size])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("bpe:280", "bpe:284"), ("bpe:300", "spm:300"), ("spm:300", "bpe:280"),
        ("bpe:280", "char"), ("char", "bpe:280"), ("unigram:300", "bpe:284"),
    ],
)  # fmt: skip
def test_every_token_of_another_tokenizer_gets_rows_that_spell_it(before: str, after: str) -> None:
    old, new = _trained(before), _trained(after, OTHERS)
    plan = plan_rows(old, new)
    assert plan.relation == "other"
    assert plan.carried + plan.from_pieces + plan.from_mean == new.vocab_size
    assert plan.shared > 0
    for token_id, pieces in enumerate(plan.sources):
        if pieces and new.token_bytes(token_id):
            spelled = b"".join(map(old.token_bytes, pieces))
            assert spelled == new.token_bytes(token_id)
    if old.kind != "char":
        assert all(plan.sources[i] for i in range(new.vocab_size) if new.token_bytes(i))
    table = plan.apply(_table(old.vocab_size + 3))
    assert table.shape == (new.vocab_size, 3)
    assert torch.isfinite(table).all()


def test_a_token_keeps_its_row_wherever_its_id_moves() -> None:
    old, new = _trained("bpe:280"), _trained("spm:300")
    plan, table = plan_rows(old, new), _table(old.vocab_size)
    moved = plan.apply(table)
    [before], [after] = (
        old.encode("r"),
        [i for i in range(new.vocab_size) if new.token_bytes(i) == b"r"][-1:],
    )
    assert before != after
    assert torch.equal(moved[after], table[before])


def test_a_letter_and_the_byte_that_spells_it_keep_their_own_rows() -> None:
    old = _trained("spm:300")
    new = _trained("spm:310", OTHERS)
    twins = [i for i in range(old.vocab_size) if old.token_bytes(i) == b"r"]
    assert len(twins) == 2
    plan = plan_rows(old, new)
    there = [i for i in range(new.vocab_size) if new.token_bytes(i) == b"r"]
    assert [plan.sources[i] for i in there] == [(i,) for i in twins]


def test_the_end_of_text_stays_the_end_under_another_name() -> None:
    old, new = _trained("bpe:280"), _trained("spm:300")
    assert old.eos_token_id is not None
    assert new.eos_token_id is not None
    assert plan_rows(old, new).sources[new.eos_token_id] == (old.eos_token_id,)


def test_what_is_said_counts_each_kind(tmp_path: Path) -> None:
    old = _trained("bpe:280")
    new = with_added(old, tmp_path, ("walks home", False), ("<|turn|>", True))
    words = plan_rows(old, new).describe()
    assert "extends the model's" in words
    assert "of 282 tokens 280 keep their row, 1 begin as the mean of their pieces, 1 as" in words


def test_rows_of_a_vocabulary_can_be_planned_by_hand() -> None:
    plan = TokenRows("other", [(1,), (0, 1), ()], 2, 1, 1, 1, 1)
    old = torch.tensor([[0.0, 2.0], [4.0, 0.0], [9.0, 9.0]])
    assert plan.apply(old).tolist() == [[4.0, 0.0], [2.0, 1.0], [2.0, 1.0]]
