"""llamita: from text to a small Llama-family language model, every step checkable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from llamita.inference.lm import LM

__version__ = "0.1.0"
__all__ = ["LM", "__version__", "load"]


def load(
    path: str | PathLike[str],
    *,
    backend: str = "auto",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    override: Mapping[str, Any] | Iterable[str] | None = None,
    preset: str | None = None,
    tokenizer: str | PathLike[str] | None = None,
    base: str | PathLike[str] | None = None,
    kv_cache_dtype: str | torch.dtype | None = None,
    compile: bool = False,
) -> LM:
    """Load a model with its tokenizer, ready to use.

    Args:
        path: a HuggingFace model directory, a training RUN (its latest model), a GGUF file, a
            Hermes or ArmGPT `.pt`, a folder of Meta's shards, or an adapter in PEFT's format; told
            apart by content.
        backend: "torch", or "auto", which is the same for now.
        device: where the model runs; left out, a CUDA device if there is one, else the CPU.
        dtype: of the weights, as "bfloat16" or `torch.bfloat16`; left out, float32 on the CPU,
            where it is exact and never slow, and the checkpoint's own elsewhere.
        override: settings that the checkpoint lacks or has wrong, as a dictionary or as
            "key=value" strings.
        preset: the shape of a Hermes state dict that says none, as "1b".
        tokenizer: the tokenizer's file or directory, where it does not lie with the model.
        base: the model that an adapter is for, instead of the one that it names.
        kv_cache_dtype: of what is kept of the text read, "float32" or "bfloat16"; left out, that
            of the weights.
        compile: generate through `torch.compile`: faster, after up to minutes of compiling, which
            are kept on disk.

    Raises:
        LlamitaError: there is no model, it is damaged, or an argument cannot be.
    """
    from pathlib import Path

    from llamita.errors import ConfigError
    from llamita.formats.checkpoint import build_model
    from llamita.formats.config_read import parse_overrides
    from llamita.formats.detect import load_checkpoint
    from llamita.inference.lm import LM
    from llamita.inference.torch_backend import read_cache_dtype
    from llamita.model.placement import choose_device, parse_dtype
    from llamita.tokenizer.load import checkpoint_tokenizer

    if backend not in ("auto", "torch"):
        raise ConfigError(f"there is no backend {backend!r}; known are 'auto' and 'torch'.")
    chosen_device = choose_device(device)
    chosen_dtype = parse_dtype(dtype, default="float32" if chosen_device.type == "cpu" else None)
    cache_dtype = read_cache_dtype(kv_cache_dtype)
    if override is not None and not isinstance(override, Mapping):
        override = parse_overrides([override] if isinstance(override, str) else override)
    checkpoint = load_checkpoint(
        Path(path),
        override,
        preset=preset,
        tokenizer=None if tokenizer is None else Path(tokenizer),
        base=None if base is None else Path(base),
    )
    own_tokenizer = checkpoint_tokenizer(checkpoint)
    model = build_model(checkpoint, chosen_device, chosen_dtype)
    return LM(
        model,
        own_tokenizer,
        checkpoint.generation,
        kv_cache_dtype=cache_dtype,
        compile=compile,
    )


def __getattr__(name: str) -> Any:
    if name == "LM":
        from llamita.inference.lm import LM

        return LM
    raise AttributeError(f"module 'llamita' has no attribute {name!r}")
