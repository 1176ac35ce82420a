"""The golden cases: checkpoints in foreign layouts with what their own models answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import llamita
from llamita.config import ModelConfig
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.stored import StoredTensor
from llamita.model.transformer import Transformer

FOLDER = Path(__file__).parent.parent / "fixtures" / "golden"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
TOLERANCE = 2e-5


@dataclass(frozen=True)
class Golden:
    """One case: `path` is its MODEL, `ids` [B, T] what its model was fed."""

    name: str
    path: Path
    kind: str
    ids: Tensor
    prompt_tokens: int
    expected: dict[str, Tensor]

    def labels(self) -> Tensor:
        """What its loss counted, as llamita is told it: Hermes ignores its pad id."""
        labels = self.expected.get("labels", self.ids)
        return labels.masked_fill(labels == 0, -100) if "labels" in self.expected else labels

    def gap(self, lm: llamita.LM) -> float:
        """The largest difference of two logits."""
        positions = self.expected["logits"].shape[1]
        return float((lm.logits(self.ids[:, :positions]) - self.expected["logits"]).abs().max())

    def tensors(self) -> dict[str, Tensor]:
        """The model's tensors by the file's names, joined into one shard."""
        return state_of(self.path)


def golden(name: str) -> Golden:
    folder = FOLDER / name
    inputs: dict[str, Any] = json.loads((folder / "inputs.json").read_text())
    is_meta = inputs["kind"] == "meta-llama"
    return Golden(
        name,
        folder if is_meta else folder / "checkpoint.pt",
        "meta" if is_meta else inputs["kind"],
        torch.tensor(inputs["input_ids"]),
        inputs["greedy_prompt_tokens"],
        load_file(folder / "expected.safetensors"),
    )


def state_of(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.pt`, or of Meta's shards as `NN/name`, read by PyTorch itself."""
    if path.is_dir():
        shards = sorted(path.glob("consolidated.*.pth"))
        return {
            f"{number}/{name}": tensor
            for number, shard in enumerate(shards)
            for name, tensor in torch.load(shard, weights_only=True).items()
        }
    state = torch.load(path, weights_only=True)["model"]
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in state.items()}


def random_checkpoint(seed: int = 0, **fields: Any) -> Checkpoint:
    """A small model whose logits show every fault, as a checkpoint."""
    shape: dict[str, Any] = {
        "vocab_size": 48,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 96,
    }
    model = Transformer(ModelConfig(**{**shape, **fields}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = name.endswith("norm.weight")
            scale = parameter.shape[-1] ** -0.5 if noise.dim() > 1 else 0.3
            parameter.copy_(1 + 0.3 * noise if is_norm else noise * scale)
    tensors = {name: StoredTensor.of(t.detach()) for name, t in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    return Checkpoint(model.config, tensors, Path("random"))
