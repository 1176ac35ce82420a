"""Runs that train low-rank adapters: merged models for everyone, and an adapter that PEFT reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import llamita
from llamita.config import preset
from llamita.errors import ConfigError, Interrupted, TrainingError
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.chat_ready import ready_for_chats
from llamita.training.memory.accounting import estimate_disk, estimate_memory
from llamita.training.ranks.world import World
from llamita.training.settings.recipe_file import build_recipe, load_recipe
from llamita.training.steps.parallel import choose_parallel
from tests.training.finetuning.conftest import save_base
from tests.training.finetuning.runs import finetune
from tests.training.recipes import small_recipe
from tests.training.runs import assert_same_runs, stop_after, weights_of

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])
LORA = ("lora.rank=4", "optimizer.learning_rate=0.02")


@pytest.mark.parametrize("tied", [True, False])
def test_the_adapter_is_the_best_model_to_llamita_and_to_peft(
    tied: bool, plain_tokenizer: Tokenizer, chats_path: Path, tmp_path: Path
) -> None:
    model = save_base(tmp_path / "model", plain_tokenizer, tie_word_embeddings=tied)
    result = finetune(model, chats_path, tmp_path / "run", *LORA, steps=6)
    best, adapter = tmp_path / "run" / "best", tmp_path / "run" / "adapter"
    ids = torch.cat([IDS, torch.tensor([[plain_tokenizer.vocab_size + 1, 4]])], 1)
    expected = llamita.load(best).logits(ids)
    loaded = llamita.load(adapter)
    assert torch.allclose(loaded.logits(ids), expected, atol=1e-5)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.chat_template is not None
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 32)
    assert config["base_model_name_or_path"] == str(model)
    # And <|im_start|> and <|im_end|>: no text that the base was trained on had them.
    seen_never = [plain_tokenizer.special_tokens[f"<|im_{name}|>"] for name in ("start", "end")]
    added = list(range(plain_tokenizer.vocab_size, plain_tokenizer.vocab_size + 4))
    new = [*seen_never, *added]
    tokens = config["trainable_token_indices"]
    assert tokens == (new if tied else {"embed_tokens": new, "lm_head": new})
    # Nothing but the adapters and the rows of new tokens has moved.
    before, after = load_file(model / "model.safetensors"), weights_of(tmp_path / "run", "best")
    table = "model.embed_tokens.weight"
    others = [i for i in range(plain_tokenizer.vocab_size) if i not in new]
    assert torch.equal(after[table][others], before[table][others])
    trained = table if tied else "lm_head.weight"  # no chat has a tool to read
    for rows in (seen_never, added):
        assert not torch.allclose(after[trained][rows], before[trained].mean(0), atol=1e-4)
    assert torch.equal(after["model.norm.weight"], before["model.norm.weight"])
    assert not [name for name in after if "lora" in name]
    assert result.summary.best_step is not None

    peft = pytest.importorskip("peft")
    theirs = AutoModelForCausalLM.from_pretrained(model)
    theirs.resize_token_embeddings(len(AutoTokenizer.from_pretrained(adapter)), mean_resizing=False)
    adapted = peft.PeftModel.from_pretrained(theirs, adapter).eval()
    with torch.no_grad():
        assert torch.allclose(adapted(ids).logits, expected, atol=1e-4)


def test_a_stopped_run_goes_on_to_the_bit(base: Path, chats_path: Path, tmp_path: Path) -> None:
    settings = (*LORA, "lora.dropout=0.3")
    finetune(base, chats_path, tmp_path / "whole", *settings, steps=6)
    with pytest.raises(Interrupted):
        finetune(base, chats_path, tmp_path / "parts", *settings, steps=6, observer=stop_after(3))
    finetune(base, chats_path, tmp_path / "parts", *settings, steps=6)
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")
    adapters = [load_file(tmp_path / name / "adapter" / "adapter_model.safetensors")
                for name in ("whole", "parts")]  # fmt: skip
    assert all(torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[0])


def test_without_held_out_chats_the_adapter_is_the_latest(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    from llamita.training.finetuning.chat_data import Chats

    finetune(base, Chats([chats_path], val_fraction=0.0), tmp_path / "run", *LORA)
    assert not (tmp_path / "run" / "best").exists()
    latest = llamita.load(tmp_path / "run" / "latest").logits(IDS)
    assert torch.allclose(llamita.load(tmp_path / "run" / "adapter").logits(IDS), latest, atol=1e-5)


def test_a_model_that_is_ready_for_chats_has_frozen_tables(
    plain_tokenizer: Tokenizer, chats_path: Path, tmp_path: Path
) -> None:
    model = save_base(tmp_path / "model", ready_for_chats(plain_tokenizer))
    finetune(model, chats_path, tmp_path / "run", *LORA)
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    assert recipe.lora is not None
    assert recipe.lora.tokens == ()
    before, after = load_file(model / "model.safetensors"), weights_of(tmp_path / "run", "best")
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    assert (tmp_path / "run" / "adapter" / "tokenizer.json").is_file()


def test_an_adapter_is_a_model_to_go_on_from_but_not_with_another_one(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    finetune(base, chats_path, tmp_path / "run", *LORA)
    adapter = tmp_path / "run" / "adapter"
    finetune(adapter, chats_path, tmp_path / "more", "optimizer.learning_rate=1e-30")
    before, after = llamita.load(adapter).logits(IDS), llamita.load(tmp_path / "more").logits(IDS)
    assert torch.allclose(before, after, atol=1e-6)
    with pytest.raises(TrainingError, match="an adapter itself") as error:
        finetune(adapter, chats_path, tmp_path / "second", *LORA)
    assert "llamita merge" in (error.value.hint or "")


def test_minutes_are_measured_and_leave_the_adapters_as_they_were(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    summary = finetune(
        base, chats_path, tmp_path / "run", *LORA, "length.minutes=0.01", steps=None
    ).summary
    assert summary.steps == load_recipe(tmp_path / "run" / "recipe.toml").length.steps
    again = finetune(
        base, chats_path, tmp_path / "again", *LORA, f"length.steps={summary.steps}", steps=None
    )
    assert again.summary.best_loss == summary.best_loss


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (("lora.rank=0",), "lora.rank"),
        (("lora.rank=4", "lora.targets=[]"), "lora.targets"),
        (("lora.rank=4", 'lora.targets=["lm_head"]'), "lora.targets"),
        (("lora.rank=4", "optimizer.name=muon"), "'muon'"),
        (("lora.alpha=4",), "lora.rank"),
    ],
)
def test_wrong_settings_are_named(
    assignments: tuple[str, ...], words: str, base: Path, chats_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        finetune(base, chats_path, tmp_path / "run", *assignments)
    assert not (tmp_path / "run").exists()


def test_adapters_need_a_model_to_adapt_and_tokens_that_it_knows(
    data: Path, base: Path, tmp_path: Path
) -> None:
    from llamita.training.run import train

    with pytest.raises(ConfigError, match="none is named to begin with"):
        small_recipe("lora.rank=4", "optimizer.name=adamw")
    recipe = small_recipe(f"init={base}", "lora.rank=4", "optimizer.name=adamw")
    with pytest.raises(TrainingError, match="lora leaves the rows of tokens"):
        train(data, tmp_path / "run", recipe)


def test_frozen_weights_need_no_gradients_and_no_optimizer_state() -> None:
    config = preset("small", 8192)
    whole = build_recipe(None, ["init=x", "optimizer.name=adamw"], {})
    adapters = build_recipe(None, ["init=x", "optimizer.name=adamw", "lora.rank=8"], {})
    rows = build_recipe(
        None, ["init=x", "optimizer.name=adamw", "lora.rank=8", "lora.tokens=[3]"], {}
    )
    assert adapters.lora is not None
    values, total = adapters.lora.values(config), config.count_parameters()
    table = config.vocab_size * config.hidden_size
    of_all, of_adapters = (estimate_memory(recipe, config) for recipe in (whole, adapters))
    assert of_adapters.parameters == 4 * (total + values)
    assert of_adapters.optimizer == 8 * values
    assert of_all.optimizer == 8 * total
    assert estimate_memory(rows, config).optimizer == 8 * (values + table)
    assert of_adapters.in_ram < of_all.in_ram
    saved = [estimate_disk(recipe, config).checkpoint for recipe in (whole, adapters)]
    extra = table if config.tie_word_embeddings else 0
    assert saved == [4 * (3 * total + extra), 4 * (total + 3 * values + extra)]


def test_adapters_are_trained_by_whole_copies(base: Path) -> None:
    recipe = small_recipe(f"init={base}", "lora.rank=4", "optimizer.name=adamw")
    config = llamita.load(base).config
    assert choose_parallel(recipe, config, World())[0] == "ddp"
    sharded = small_recipe(
        f"init={base}", "lora.rank=4", "optimizer.name=adamw", "machine.parallel=fsdp"
    )
    with pytest.raises(TrainingError, match=r"machine\.parallel is fsdp"):
        choose_parallel(sharded, config, World())
