"""Models that a run begins with or learns from: opened, told apart by content, and checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.errors import TrainingError
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A checkpoint in any format, with the tokenizer that its rows belong to."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer

    @classmethod
    def open(cls, path: str, setting: str) -> ModelSource:
        """Read the model at `path`, which `setting` ("init", "teacher") names.

        Raises:
            LlamitaError: there is none, it is damaged, or it brings no tokenizer.
        """
        checkpoint = load_checkpoint(Path(path))
        tokenizer = checkpoint_tokenizer(checkpoint)
        if tokenizer is None:
            raise TrainingError(
                f"{setting} is {path}, a model without a tokenizer: nobody can tell which tokens "
                "its rows are.",
                hint=f"Give it one: llamita convert {path} DIR --to hf --tokenizer PATH",
            )
        return cls(checkpoint, tokenizer)

    def fingerprint(self) -> str:
        """A hash of what the model is: its config, its tokens and every number, as stored."""
        digest = hashlib.sha256()
        config = _stated(self.checkpoint.config)
        digest.update(json.dumps([config, self.tokenizer.fingerprint], sort_keys=True).encode())
        for name, tensor in sorted(self.checkpoint.tensors.items()):
            digest.update(f"{name} {tensor.kind} {list(tensor.shape)}".encode())
            values = tensor.blocks() if tensor.blocks is not None else tensor.read()
            digest.update(values.contiguous().view(torch.uint8).numpy().data)
        return f"sha256:{digest.hexdigest()}"

    def checked_fingerprint(self, recorded: str | None, setting: str, key: str) -> str:
        """The fingerprint, which must be the one `recorded` (in the setting `key`), where one is.

        Raises:
            TrainingError: the model is another than the recipe was written for.
        """
        fingerprint = self.fingerprint()
        if recorded is not None and fingerprint != recorded:
            raise TrainingError(
                f"{setting} is {self.checkpoint.path}, which is not the model any more that the "
                "run was begun with: its weights, config or tokenizer have changed.",
                hint=f"Put that model back, or begin a new run with this one: another -o, and "
                f"--set {key}=null",
            )
        return fingerprint


def _stated(config: ModelConfig) -> dict[str, Any]:
    """The fields that differ from their defaults: one that a later version adds changes no hash."""
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.init and getattr(config, field.name) != field.default
    }


def longest_context(config: ModelConfig) -> int:
    """Positions a model is made for: its context, or what its rotary scaling stretches it to."""
    scaling = config.rope_scaling or {}
    original = scaling.get("original_max_position_embeddings", config.max_position_embeddings)
    return max(config.max_position_embeddings, int(scaling.get("factor", 1) * original))
