"""What a single file is, told by its first bytes; and why a file that holds no model holds none."""

from __future__ import annotations

import struct
from pathlib import Path

from llamita.errors import CheckpointError
from llamita.files import check_plain_file
from llamita.formats.zip_directory import read_zip_directory

GGUF, TORCH, SAFETENSORS = "gguf", "torch", "safetensors"

_OTHERS = (
    (b"LITERTLM", "a LiteRT-LM bundle", "llamita writes these but does not read them."),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras)", "Export the model as safetensors."),
    (b"lmgg", "a GGML file of before GGUF", "Convert the original model to GGUF anew."),
    (b"fmgg", "a GGML file of before GGUF", "Convert the original model to GGUF anew."),
    (b"tjgg", "a GGML file of before GGUF", "Convert the original model to GGUF anew."),
    (b"version https://git-lfs", "a Git LFS pointer, not the file", "Run `git lfs pull` there."),
    (b"\x1f\x8b", "compressed with gzip", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first."),
    (b"\xfd7zXZ\x00", "compressed with xz", "Unpack it first."),
    (b"BZh", "compressed with bzip2", "Unpack it first."),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first."),
    (b"\x93NUMPY", "a NumPy array", "A model is more than one array."),
    (b"<", "a web page or XML", "A download may have given an error page instead of the file."),
)
_HEAD = 512
_LONGEST_HEADER = 1 << 32
MODEL_HINT = (
    "MODEL is a HuggingFace directory (config.json and safetensors), a training RUN, a Meta "
    "folder, a GGUF file, or a .pt of Hermes or ArmGPT."
)


def kind_of(path: Path) -> str | None:
    """GGUF, TORCH or SAFETENSORS, or None; whether it is whole is not looked at.

    Raises:
        CheckpointError: the file cannot be read.
    """
    head = _head(path)
    if head[:4] in (b"GGUF", b"FUGG"):
        return GGUF
    if head[:4] == b"PK\x03\x04":
        return TORCH if _is_torch_zip(path, head) else None
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and len(head) > 2:
        return TORCH
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and 2 <= length < _LONGEST_HEADER:
        return SAFETENSORS
    return None


def refusal(path: Path) -> CheckpointError:
    """Why a file of none of the kinds is no model: what it is instead."""
    head = _head(path)
    if not head:
        return CheckpointError(f"{path} is an empty file.", hint=MODEL_HINT)
    if head[4:8] == b"TFL3":
        what, hint = "a TFLite model", "It cannot be read back; use what it was made of."
        return CheckpointError(f"{path} is {what}, which is not read.", hint=hint)
    if head[257:262] == b"ustar":
        return CheckpointError(f"{path} is a tar archive.", hint="Unpack it first.")
    if head[:4] == b"PK\x03\x04":
        return CheckpointError(
            f"{path} is a zip archive, or a damaged PyTorch file: it has no data.pkl.",
            hint="Unpack it first, or copy or download the file again.",
        )
    for magic, what, hint in _OTHERS:
        if head.startswith(magic):
            return CheckpointError(f"{path} is {what}, which is not read.", hint=hint)
    if head.lstrip()[:1] in (b"{", b"["):
        return CheckpointError(f"{path} is a JSON file, not a model.", hint=MODEL_HINT)
    return CheckpointError(f"{path} is a file, not a model that is known here.", hint=MODEL_HINT)


def _is_torch_zip(path: Path, head: bytes) -> bool:
    """Whether the archive's files are PyTorch's: `data.pkl` mostly comes first."""
    end_of_name = 30 + int.from_bytes(head[26:28], "little")
    if head[30:end_of_name].endswith(b"data.pkl"):
        return True
    try:
        with path.open("rb") as handle:
            return any(name.endswith("data.pkl") for name in read_zip_directory(handle))
    except (ValueError, OSError, struct.error):
        return False


def _head(path: Path) -> bytes:
    check_plain_file(path, CheckpointError)
    try:
        with path.open("rb") as handle:
            return handle.read(_HEAD)
    except OSError as cause:
        raise CheckpointError(f"cannot read {path}: {cause.strerror}.") from cause
