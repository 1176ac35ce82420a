"""Checkpoints of the three systems give what their own models gave, here and after converting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import llamita
from llamita.errors import ConfigError
from llamita.formats import meta
from llamita.formats.armgpt import write_armgpt
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.formats.gguf_write import write_gguf
from llamita.formats.hermes import write_hermes
from llamita.formats.huggingface import write_model_files
from llamita.formats.key_map import InterleavedHeads, Rule
from llamita.formats.meta import write_meta
from tests.formats.golden_cases import NAMES, TOLERANCE, Golden, golden, state_of


def write_hf(checkpoint: Checkpoint, destination: Path) -> None:
    destination.mkdir()
    write_model_files(checkpoint.config, checkpoint.tensors, destination)


def write_f32_gguf(checkpoint: Checkpoint, destination: Path) -> None:
    write_gguf(checkpoint, None, destination, "f32")


WRITERS: dict[str, Callable[..., None]] = {
    "hf": write_hf,
    "hermes": write_hermes,
    "armgpt": write_armgpt,
    "meta": write_meta,
    "gguf": write_f32_gguf,
}
REFUSED = {
    ("hermes-tied", "armgpt"): "num_key_value_heads is 2",
    ("hermes-untied-mha", "armgpt"): r"rms_norm_eps is 0\.01",
    ("meta-llama-1-shard", "armgpt"): "rms_norm_eps is 1e-05",
    ("meta-llama-2-shards-mha", "armgpt"): r"rms_norm_eps is 0\.01",
}


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> Golden:
    return golden(request.param)


def write_own(case: Golden, checkpoint: Checkpoint, destination: Path) -> None:
    """Write in the case's own layout, in as many shards as it came in."""
    shards = len(list(case.path.glob("consolidated.*"))) if case.kind == "meta" else 0
    settings: dict[str, Any] = {"shards": shards} if shards else {}
    WRITERS[case.kind](checkpoint, destination, **settings)


def test_logits_greedy_tokens_and_losses_are_the_original_models(case: Golden) -> None:
    lm = llamita.load(case.path, device="cpu")
    assert case.gap(lm) <= TOLERANCE
    prompts = case.expected["greedy"][:, : case.prompt_tokens].tolist()
    results = lm.generate(prompts, max_tokens=24, temperature=0.0, stop_token_ids=[])
    tokens = [[*prompt, *result.token_ids] for prompt, result in zip(prompts, results, strict=True)]
    assert tokens == case.expected["greedy"].tolist()
    if "loss" in case.expected:
        loss = lm.loss(case.ids, case.labels())
        torch.testing.assert_close(loss, case.expected["loss"][0], rtol=0, atol=1e-5)


def test_through_hf_and_back_every_tensor_is_the_golden_files_own(
    case: Golden, tmp_path: Path
) -> None:
    write_hf(load_checkpoint(case.path), tmp_path / "hf")
    back = load_checkpoint(tmp_path / "hf")
    write_own(case, back, tmp_path / "back")
    ours, original = state_of(tmp_path / "back"), case.tensors()
    assert ours.keys() == original.keys()
    for name, tensor in original.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name], tensor), name


def test_transformers_judges_the_hf_directory(case: Golden, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_hf(load_checkpoint(case.path), tmp_path / "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", dtype=torch.float32, attn_implementation="eager"
    ).eval()
    positions = case.expected["logits"].shape[1]
    with torch.no_grad():
        logits = model(case.ids[:, :positions]).logits
    assert float((logits - case.expected["logits"]).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("target", WRITERS)
def test_each_layout_that_can_hold_it_holds_it_and_gives_it_back(
    case: Golden, target: str, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(case.path)
    refusal = REFUSED.get((case.name, target))
    if refusal is not None:
        with pytest.raises(ConfigError, match=refusal):
            WRITERS[target](checkpoint, tmp_path / "there")
        assert not (tmp_path / "there").exists()
        return
    WRITERS[target](checkpoint, tmp_path / "there")
    there = load_checkpoint(tmp_path / "there")
    assert there.format == target
    assert case.gap(llamita.load(tmp_path / "there", device="cpu")) <= TOLERANCE
    assert there.config.max_position_embeddings == checkpoint.config.max_position_embeddings
    assert there.config.tie_word_embeddings == checkpoint.config.tie_word_embeddings
    if target != "gguf":  # there the tokenizer holds them, and these models have none
        assert there.config.eos_token_id == checkpoint.config.eos_token_id
    write_own(case, there, tmp_path / "back")
    ours, original = state_of(tmp_path / "back"), case.tensors()
    assert ours.keys() == original.keys()
    assert all(torch.equal(ours[name], original[name]) for name in original)


def test_keys_permuted_by_the_query_heads_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tuple(
        Rule(rule.native, rule.foreign, InterleavedHeads("num_attention_heads"))
        if rule.foreign.endswith(".wk.weight")
        else rule
        for rule in meta.RULES
    )
    monkeypatch.setattr(meta, "RULES", wrong)
    case = golden("meta-llama-1-shard")
    assert case.gap(llamita.load(case.path, device="cpu")) > 100 * TOLERANCE
