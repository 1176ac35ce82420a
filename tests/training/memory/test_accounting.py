"""What a run takes, by arithmetic, against what it really takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from llamita.config import ModelConfig, preset
from llamita.model import Transformer
from llamita.training.memory.accounting import estimate_disk, estimate_memory, split_rows
from llamita.training.memory.activations import Pass, kept_activations, kept_of_layer
from llamita.training.memory.rank_memory import Parallel, ParameterCounts, rank_memory
from llamita.training.run import train
from llamita.training.settings.recipe import Length, Optimizer
from llamita.training.steps.optimizers import build_optimizers
from tests.training.recipes import small_recipe

SHAPES = {
    "plain": preset("tiny", 300),
    "untied": preset("tiny", 300, tie_word_embeddings=False),
    "grouped": preset("tiny", 300, num_attention_heads=4, num_key_value_heads=2),
    "normed": preset("tiny", 300, use_qk_norm=True, head_dim=16),
    "biased": preset("tiny", 300, attention_bias=True, mlp_bias=True),
}


PARALLEL: tuple[Parallel, ...] = ("ddp", "fsdp")


def _kept(config: ModelConfig, rows: int, time: int, *, checkpointing: bool = False) -> int:
    """Bytes that autograd keeps at the end of a forward pass, weights aside."""
    model = Transformer(config).initialize(0)
    model.checkpointing = checkpointing
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.zeros(rows, time, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        hidden = model.hidden_states(ids)
    assert hidden.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("time", [64, 256])
def test_what_layers_keep_is_what_autograd_keeps(shape: str, time: int) -> None:
    two = SHAPES[shape]
    three = two.with_changes(num_hidden_layers=3)
    work = Pass(rows=3, time=time, precision="float32")
    a_layer = _kept(three, 3, time) - _kept(two, 3, time)
    assert kept_of_layer(two, work) == pytest.approx(a_layer, rel=0.02)


def test_dropout_keeps_its_masks() -> None:
    two = preset("tiny", 300, residual_dropout=0.1)
    work = Pass(rows=3, time=64, precision="float32")
    a_layer = _kept(two.with_changes(num_hidden_layers=3), 3, 64) - _kept(two, 3, 64)
    assert kept_of_layer(two, work) == pytest.approx(a_layer, rel=0.02)


def test_with_checkpointing_a_layer_keeps_what_it_was_given() -> None:
    two = SHAPES["plain"]
    three = two.with_changes(num_hidden_layers=3)
    of_one = _kept(three, 3, 64, checkpointing=True) - _kept(two, 3, 64, checkpointing=True)
    assert of_one == 3 * 64 * two.hidden_size * 4
    work = Pass(rows=3, time=64, precision="float32", checkpointing=True)
    assert kept_activations(three, work) - kept_activations(two, work) == of_one


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_parameters_and_optimizer_state_are_counted_one_by_one(shape: str, name: Any) -> None:
    config = SHAPES[shape]
    model = Transformer(config).initialize(0)
    optimizers = build_optimizers(model, Optimizer(name=name), "float32")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    state = 0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        state += sum(
            value.numel() for values in optimizer.state.values() for value in values.values()
            if value.dim()
        )  # fmt: skip
    counts = ParameterCounts.of(config)
    assert counts.total == sum(parameter.numel() for parameter in model.parameters())
    assert counts.optimizer_values(name) == state


def test_parts_add_up_and_are_a_rank_s_share() -> None:
    recipe = small_recipe("optimizer.name=adamw")
    config = preset("tiny", 300)
    whole = estimate_memory(recipe, config)
    assert sum(whole.parts.values()) == whole.in_ram + whole.on_device
    shared = estimate_memory(recipe, config, ranks=4, parallel="fsdp")
    for part in ("parameters", "optimizer", "snapshot"):
        assert getattr(shared, part) == pytest.approx(getattr(whole, part) / 4, rel=0.01)
    replica = estimate_memory(recipe, config, ranks=4, parallel="ddp")
    assert replica.parameters == whole.parameters
    assert replica.activations == pytest.approx(whole.activations / 4, rel=0.1)


def test_the_weights_to_go_back_to_are_a_rank_s_own() -> None:
    config = preset("tiny", 300)
    counted = small_recipe("machine.device=cuda")
    timed = counted.model_copy(update={"length": Length(minutes=1)})
    for ranks, parallel in ((1, PARALLEL[0]), (4, PARALLEL[0]), (4, PARALLEL[1])):
        with_steps, with_minutes = (
            estimate_memory(recipe, config, ranks=ranks, parallel=parallel)
            for recipe in (counted, timed)
        )
        assert with_minutes.in_ram - with_steps.in_ram == with_steps.parameters
        assert with_minutes.on_device == with_steps.on_device


def test_the_order_of_two_epochs_is_counted() -> None:
    recipe, config = small_recipe(), preset("tiny", 300)
    rows = 10**9
    tokens = rows * recipe.batch.context_length
    added = estimate_memory(recipe, config, train_tokens=tokens).data
    assert added - estimate_memory(recipe, config).data == 16 * rows


def test_layers_gathered_in_bfloat16_are_kept_nowhere() -> None:
    """Weights of two layers, gradients of one, and of one more in float32."""
    config = preset("small", 8192)
    counts = ParameterCounts.of(config)
    layer = counts.matrices // config.num_hidden_layers
    for precision, kept, gathered in (
        ("float32", 0, 16 * layer),
        ("bfloat16", 2 * counts.matrices, 10 * layer),
    ):
        work = Pass(rows=8, time=1024, precision=precision, device="cuda", compiled=True)
        ddp, fsdp = (
            rank_memory(config, work, "adamw", micro_batches=1, ranks=4, parallel=kind)
            for kind in PARALLEL
        )
        assert fsdp.working - gathered - 8 * counts.tables == ddp.working - kept


def test_on_a_gpu_main_memory_holds_the_program_and_the_save_alone() -> None:
    recipe = small_recipe("machine.device=cuda", "machine.precision=bfloat16")
    memory = estimate_memory(recipe, preset("small", 8192))
    assert memory.on_device > memory.parameters + memory.optimizer + memory.activations
    assert memory.in_ram == memory.snapshot + memory.data + memory.program


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 64))
def test_rows_are_shared_out_whole(sequences: int, accumulation: int, ranks: int) -> None:
    split = split_rows(sequences, accumulation, ranks)
    total = split.rows * split.micro_batches * ranks
    assert 1 <= split.rows <= sequences
    assert sequences * accumulation <= total < sequences * accumulation + ranks
    if sequences * accumulation % ranks == 0:
        assert total == sequences * accumulation


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_disk_a_run_takes_is_what_was_said(data: Path, tmp_path: Path, name: str) -> None:
    recipe = small_recipe(
        f"optimizer.name={name}", "watch.validate_every=2", "model.hidden_size=128", steps=8
    )
    train(data, tmp_path / "run", recipe)
    config = recipe.model_shape(300)
    said = estimate_disk(recipe, config)
    folders = sorted((tmp_path / "run" / "checkpoints").iterdir())
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in folders]
    assert len(sizes) == recipe.checkpoints.keep
    assert sizes[0] == pytest.approx(said.checkpoint, rel=0.1)
    assert said.checkpoints == said.checkpoint * (recipe.checkpoints.keep + 1)
    models = [tmp_path / "run" / name / "model.safetensors" for name in ("latest", "best")]
    assert sum(path.stat().st_size for path in models) == pytest.approx(
        said.models / 3 * 2, rel=0.1
    )


def test_milestones_are_counted_into_the_disk() -> None:
    config = preset("tiny", 300)
    plain = estimate_disk(small_recipe(steps=100), config)
    kept = estimate_disk(small_recipe("checkpoints.keep_every=10", steps=100), config)
    assert kept.checkpoints == plain.checkpoints + 8 * plain.checkpoint
