"""Models in shards: built without any rank having all of one, and written in one piece."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

from llamita.config import preset
from llamita.files import remove_leftovers
from llamita.formats.huggingface import save_model_directory
from llamita.model import Transformer
from llamita.tokenizer import load_tokenizer
from llamita.training.memory.rank_memory import ParameterCounts
from llamita.training.settings.recipe import Recipe
from llamita.training.sources.initial import InitialModel
from llamita.training.sources.new_model import new_model
from tests.training.ranks.gathering_jobs import (
    fail_amid_gathering,
    gather_pieces,
    keep_back_a_part,
    pieces,
)
from tests.training.ranks.parallel_jobs import batch_of, learn_in_bfloat16
from tests.training.ranks.processes import Killed, all_well, run_ranks
from tests.training.ranks.rank_jobs import (
    begin_with,
    die_while_looking,
    learn_from,
    look_for_folders,
    memory_to_build,
    shape,
)
from tests.training.runs import are_same


def test_a_model_built_in_shards_has_one_processs_weights_to_the_bit(
    data: Path, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(data)
    other = preset("tiny", tokenizer.vocab_size, tie_word_embeddings=False)
    save_model_directory(
        Transformer(other).initialize(1), tmp_path / "model", tokenizer, torch.bfloat16
    )
    configs = [shape(), shape(tie_word_embeddings=False, attention_bias=True)]
    recipe = Recipe(init=str(tmp_path / "model"), batch={"context_length": 32})  # type: ignore[arg-type]
    start = InitialModel.open(recipe, tokenizer)
    whole = [new_model(config, 5, None) for config in configs]
    whole.append(new_model(start.config, 5, start))
    for built in all_well(run_ranks(4, begin_with, configs, tmp_path / "model", data)):
        for weights, model in zip(built, whole, strict=True):
            assert are_same(weights, {name: p.detach() for name, p in model.named_parameters()})


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak of a process's memory")
def test_no_rank_has_the_whole_model_while_it_is_built() -> None:
    config = dataclasses.replace(preset("demo", 500), num_hidden_layers=20)
    whole = 4 * config.count_parameters()
    for peak in all_well(run_ranks(4, memory_to_build, config)):
        assert whole / 4 < peak < whole / 2


def test_in_bfloat16_shards_learn_as_replicas_do_and_keep_no_whole_weights() -> None:
    batches = [batch_of(labelled, rows=2) for labelled in (90, 97, 60, 50)]
    counts = ParameterCounts.of(preset("tiny", 50))
    for ways in all_well(run_ranks(2, learn_in_bfloat16, batches)):
        assert ways["ddp"].kept == 2 * counts.matrices
        assert ways["fsdp"].kept == ways["checkpointing"].kept == 0
        assert ways["checkpointing"].losses == ways["fsdp"].losses
        assert ways["fsdp"].losses == pytest.approx(ways["ddp"].losses, rel=1e-3)
        assert ways["fsdp"].losses[-1] < 0.95 * ways["fsdp"].losses[0]


def test_pieces_become_whole_on_the_first_rank_in_the_order_in_which_they_are_asked_for() -> None:
    found = all_well(run_ranks(4, gather_pieces))
    assert found[1:] == [None] * 3
    expected = {name: values for name, (values, _) in pieces().items()}
    assert are_same(found[0], {**expected, "plain": torch.arange(3)})


def test_where_the_first_rank_gives_up_nobody_waits() -> None:
    told = all_well(run_ranks(3, fail_amid_gathering))
    assert told == ["ValueError: no more", *["TrainingError: ValueError: no more"] * 2]


def test_a_rank_that_cannot_give_its_part_says_so_and_nobody_waits() -> None:
    lost, others = "rank 1 could not give its part of the model.", ["0", "1", "2"]
    told = all_well(run_ranks(3, keep_back_a_part, 1))
    assert told == [[lost, *others], ["no room", *others], [lost, *others]]


def test_a_folder_that_a_rank_does_not_share_is_refused_on_all(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "a", "b")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    assert all_well(run_ranks(2, look_for_folders, folders)) == ["shared"] * 2
    told = all_well(run_ranks(3, look_for_folders, folders))
    assert len(set(told)) == 1
    assert told[0].startswith(f"rank 2: {tmp_path / 'b'} on ")
    assert not list((tmp_path / "a").iterdir())


def test_what_a_rank_killed_meanwhile_leaves_in_the_folder_is_cleared_away(tmp_path: Path) -> None:
    outcomes = run_ranks(2, die_while_looking, tmp_path)
    assert isinstance(outcomes[0], Killed)
    assert len(list(tmp_path.iterdir())) == 1
    remove_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


def test_all_ranks_learn_from_one_teacher_in_one_precision(data: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(data)
    config = preset("tiny", tokenizer.vocab_size)
    teachers = [tmp_path / "one", tmp_path / "other"]
    for seed, path in enumerate(teachers):
        save_model_directory(Transformer(config).initialize(seed), path, tokenizer, torch.float32)
    refused = f"rank 1 reads another teacher in {teachers[0]} than rank 0."
    assert all_well(run_ranks(2, learn_from, teachers, data)) == [refused] * 2
    told = all_well(run_ranks(2, learn_from, teachers[:1] * 2, data))
    assert told == ["float32 torch.float32"] * 2
