"""PyTorch's own files (`.bin`, `.pt`, `.pth`): pickles, read as weights only.

Unpickling a stranger's file can run code. A file that needs more than tensors and plain containers
is refused.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.errors import CheckpointError


def read_torch_file(path: Path) -> Any:
    """The file's content: tensors in plain containers, memory-mapped where its kind allows it.

    Raises:
        CheckpointError: the file is damaged, or holds objects that only code could make.
    """
    try:
        path.open("rb").close()
    except OSError as cause:
        raise CheckpointError(f"cannot read {path}: {cause.strerror}.") from cause
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # files of before PyTorch 1.6 cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as cause:
        raise CheckpointError(
            f"{path} holds more than weights, or is damaged; reading it could run code: refused.",
            hint="Ask for the model as safetensors.",
        ) from cause
    except (RuntimeError, OSError, ValueError, EOFError, KeyError, AttributeError) as cause:
        raise CheckpointError(f"cannot read {path} as a PyTorch file: {cause}.") from cause


def read_torch_state_dict(path: Path) -> dict[str, Tensor]:
    """A file whose content is a state dict.

    Raises:
        CheckpointError: it is something else, or cannot be read.
    """
    content = read_torch_file(path)
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise CheckpointError(f"{path} is not a state dict: it holds {type(content).__name__}.")
    return content
