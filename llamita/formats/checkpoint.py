"""What every format is read into, and how it becomes a model.

A `Checkpoint` holds tensors under HuggingFace's names, read only when they are needed.
`match_tensors` is the border: past it, names and shapes are exactly the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.formats.end_ids import end_ids_of
from llamita.formats.key_map import listing
from llamita.formats.stored import StoredTensor
from llamita.formats.vocabulary import Vocabulary
from llamita.model.rope import RotaryEmbedding
from llamita.model.transformer import Transformer

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

WRAPPERS = frozenset(
    {
        "_orig_mod",  # torch.compile
        "module",  # DistributedDataParallel
        "_fsdp_wrapped_module",
        "_checkpoint_wrapped_module",  # activation checkpointing
    }
)
"""Path components that training wrappers put into parameter names."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_ABSURD_RATIO = 1000
_ROTARY_BUFFER = "rotary_emb.inv_freq"


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk: its description and its tensors, names and shapes checked.

    Attributes:
        tensors: by HuggingFace's names; a tied model has no `lm_head.weight`.
        path: what was read, a directory or a file.
        generation: `generation_config.json`, empty where there is none.
        format: its name, as `llamita convert --to` takes it.
        tokenizer: where its tokenizer lies (a directory or a file), the tokenizer itself as plain
            tables, or None.
        chat_format: the built-in chat format of models in this layout, where the tokenizer brings
            no template of its own.
        name: what the file calls the model, if it does.
        license: its SPDX identifier or name, if the file says it.
    """

    config: ModelConfig
    tensors: dict[str, StoredTensor]
    path: Path
    generation: dict[str, Any] = field(default_factory=dict)
    format: str = "hf"
    tokenizer: Path | Vocabulary | None = None
    chat_format: str | None = None
    name: str | None = None
    license: str | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The one dtype that holds every tensor without loss."""
        return reduce(torch.promote_types, {tensor.dtype for tensor in self.tensors.values()})

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Every token that the checkpoint calls an end; see `end_ids_of`."""
        return end_ids_of(self.config, self.generation)

    def with_end_ids(self, ids: Sequence[int]) -> Checkpoint:
        """A copy whose config says all its ends, and these alone."""
        eos = None if not ids else ids[0] if len(ids) == 1 else tuple(ids)
        rest = {key: value for key, value in self.generation.items() if key != "eos_token_id"}
        return replace(self, config=self.config.with_changes(eos_token_id=eos), generation=rest)


def build_model(
    checkpoint: Checkpoint,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Transformer:
    """The checkpoint's model, in evaluation mode.

    The tensors become the parameters themselves: where neither `dtype` nor `device` asks for
    another form they stay memory-mapped (privately: training on them leaves the file alone), so
    that loading takes no second copy.

    Args:
        dtype: of the parameters; left out, the checkpoint's own.
    """
    dtype = dtype or checkpoint.dtype
    with torch.device("meta"):
        model = Transformer(checkpoint.config)
    for name, tensor in checkpoint.tensors.items():
        owner, _, leaf = name.rpartition(".")
        parameter = torch.nn.Parameter(tensor.read().to(device=device, dtype=dtype))
        setattr(model.get_submodule(owner), leaf, parameter)
    if checkpoint.config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model.eval()


def strip_wrappers(name: str) -> str:
    """A parameter's name without what compiling or distributing put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def match_tensors(
    config: ModelConfig,
    tensors: Mapping[str, StoredTensor],
    source: Path,
    described_by: str = "config.json",
) -> dict[str, StoredTensor]:
    """The tensors under exactly the model's names, or an error that lists what does not fit.

    Rotary buffers that equal what the config gives are dropped. A tied model's `lm_head.weight`
    must equal the embedding (or stand in for a missing one) and is dropped.

    Args:
        described_by: what the config comes from, for errors.

    Raises:
        CheckpointError: names, shapes or dtypes are not those of the model.
    """
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        plain = strip_wrappers(name)
        if plain in found:
            raise CheckpointError(f"{source} holds {plain} twice, once as {name}.")
        found[plain] = tensor
    _check_layer_count(config, found, source, described_by)
    _check_size(config, found, source, described_by)
    with torch.device("meta"):
        expected = {name: t.shape for name, t in Transformer(config).state_dict().items()}
    _drop_rotary_buffers(config, found, source, described_by)
    if config.tie_word_embeddings:
        _untie(found, source)
        del expected[HEAD]
    elif HEAD not in found and EMBEDDING in found:
        raise CheckpointError(
            f"{source} holds no {HEAD}, and tie_word_embeddings is false.",
            hint="If the head is the embedding, pass --override tie_word_embeddings=true.",
        )
    _check_names(expected, found, source, described_by)
    _check_shapes_and_dtypes(expected, found, source, described_by)
    return {name: found[name] for name in expected}


def _check_layer_count(
    config: ModelConfig, tensors: Mapping[str, Any], source: Path, described_by: str
) -> None:
    """Before a model of that many layers is laid out, which takes time and memory."""
    found = {name.split(".")[2] for name in tensors if name.startswith("model.layers.")}
    if len(found) != config.num_hidden_layers:
        raise CheckpointError(
            f"{source} holds the tensors of {len(found)} layers; {described_by} has "
            f"num_hidden_layers {config.num_hidden_layers}."
        )


def _check_size(
    config: ModelConfig, tensors: Mapping[str, StoredTensor], source: Path, described_by: str
) -> None:
    """Laying out a model of absurd width takes memory, too; a merely wrong one is told by name."""
    held = sum(tensor.numel() for tensor in tensors.values())
    if config.count_parameters() > _ABSURD_RATIO * held:
        raise CheckpointError(
            f"{source} holds {held:,} numbers; {described_by} has a model of "
            f"{config.count_parameters():,}."
        )


def _drop_rotary_buffers(
    config: ModelConfig, tensors: dict[str, StoredTensor], source: Path, described_by: str
) -> None:
    names = [name for name in tensors if name.endswith(_ROTARY_BUFFER)]
    if not names:
        return
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    plain = 1.0 / config.rope_theta**exponents
    scaled = RotaryEmbedding(config).inverse_frequencies
    for name in names:
        buffer = tensors.pop(name).read()
        same = any(
            buffer.shape == known.shape
            # Half-precision checkpoints hold rounded buffers.
            and torch.allclose(buffer.double(), known.double(), rtol=1e-2, atol=0)
            for known in (plain, scaled)
        )
        if not same:
            raise CheckpointError(
                f"{source} holds rotary frequencies in {name} that {described_by} does not give "
                f"(rope_theta {config.rope_theta:g}, head_dim {config.head_dim}).",
                hint="Set the right ones with --override rope_theta=VALUE.",
            )


def _untie(tensors: dict[str, StoredTensor], source: Path) -> None:
    head = tensors.pop(HEAD, None)
    if head is None:
        return
    embedding = tensors.setdefault(EMBEDDING, head)
    if embedding.shape != head.shape or not torch.equal(embedding.read(), head.read()):
        raise CheckpointError(
            f"{source} holds an {HEAD} that differs from {EMBEDDING}, "
            "although tie_word_embeddings is true: one of the two is stale.",
            hint="To keep both as they are, pass --override tie_word_embeddings=false.",
        )


def _check_names(
    expected: Mapping[str, Any], found: Mapping[str, Any], source: Path, described_by: str
) -> None:
    missing = sorted(expected.keys() - found.keys())
    unexpected = sorted(found.keys() - expected.keys())
    if missing or unexpected:
        parts = [
            f"{len(names)} {kind}: {listing(names)}"
            for kind, names in (("missing", missing), ("unexpected", unexpected))
            if names
        ]
        raise CheckpointError(
            f"the tensors in {source} are not those that {described_by} asks for. "
            f"{'; '.join(parts)}."
        )


def _check_shapes_and_dtypes(
    expected: Mapping[str, torch.Size],
    found: Mapping[str, StoredTensor],
    source: Path,
    described_by: str,
) -> None:
    wrong = [
        f"{name} is {list(found[name].shape)}, not {list(shape)}"
        for name, shape in expected.items()
        if found[name].shape != shape
    ]
    if wrong:
        raise CheckpointError(
            f"tensors in {source} have other shapes than {described_by} gives: {listing(wrong)}."
        )
    foreign = [
        f"{name} is {str(found[name].dtype).removeprefix('torch.')}"
        for name in expected
        if found[name].dtype not in DTYPES
    ]
    if foreign:
        raise CheckpointError(
            f"{source} holds tensors that are no plain floating-point numbers: {listing(foreign)}.",
            hint="Quantized HuggingFace checkpoints are not read; take the unquantized one.",
        )
