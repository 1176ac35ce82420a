"""What a checkpoint can be converted to: one entry a format, all refusals before any writing.

`prepare` checks the weights' config, the tokenizer and the numbers against the target and returns
a `Plan`; nothing in a plan's `write` refuses any more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from llamita.errors import ConfigError, TokenizerError
from llamita.files import atomic_write_bytes
from llamita.formats import huggingface
from llamita.formats.armgpt import check_armgpt, write_armgpt
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.config_write import config_to_json
from llamita.formats.gguf_write import check_gguf, write_gguf
from llamita.formats.hermes import check_hermes, write_hermes
from llamita.formats.meta import check_meta, write_meta
from llamita.shipping.precision import BLOCKS, DTYPES
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.export import armgpt_json, sentencepiece_model, tiktoken_ranks
from llamita.tokenizer.files import TOKENIZER_JSON, TOKENIZER_MODEL
from llamita.tokenizer.gguf_vocabulary import to_vocabulary

_T = TypeVar("_T")
CHAT_TEMPLATE = "chat_template.jinja"
_NO_TOKENIZER = "Leave the tokenizer out with --no-tokenizer, or give another with --tokenizer."


@dataclass(frozen=True)
class Target:
    """A format that can be written.

    Attributes:
        file_name: the weights in a folder; None where the format is a folder.
        suffixes: of a destination that names the file itself.
    """

    name: str
    prepare: Callable[[Checkpoint, Tokenizer | None, str | None], Plan]
    file_name: str | None = None
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is about to be written.

    Attributes:
        write: writes the weights; its argument is the new file, or a folder that is there.
        side_files: the other files by name, with their content.
        notes: what the reader of the report should know.
    """

    write: Callable[[Path], None]
    side_files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def write_all(self, directory: Path, file_name: str | None) -> None:
        """Write everything into `directory`, which is there."""
        self.write(directory if file_name is None else directory / file_name)
        for name, data in self.side_files.items():
            atomic_write_bytes(directory / name, data)


def parse_quantization(quantization: str | None, target: str) -> None:
    """Raises ConfigError for a number format that there is not, or that `target` does not have."""
    known = (*DTYPES, *BLOCKS)
    if quantization is None or quantization in DTYPES:
        return
    if quantization not in known:
        raise ConfigError(f"--quant is {quantization!r}; known are {', '.join(known)}.")
    if target != "gguf":
        raise ConfigError(
            f"--quant {quantization} is a format of GGUF; {target} cannot hold it.",
            hint=f"Use --to gguf, or one of {', '.join(DTYPES)}.",
        )


def _prepare_hf(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    config_to_json(checkpoint.config, dtype="float32")
    dtype = DTYPES.get(quantization or "")

    def write(directory: Path) -> None:
        huggingface.write_model_files(
            checkpoint.config, checkpoint.tensors, directory, dtype, checkpoint.generation
        )

    return Plan(write, {} if tokenizer is None else _saved_files(tokenizer))


def _prepare_meta(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_meta(checkpoint.config)
    dtype = DTYPES.get(quantization or "")

    def write(directory: Path) -> None:
        write_meta(checkpoint, directory, dtype)

    if tokenizer is None:
        return Plan(write)
    if tokenizer.kind == "bpe":
        return _with_tokenizer(write, tokenizer, "Meta", "llama3", TOKENIZER_MODEL, tiktoken_ranks)
    export = sentencepiece_model
    return _with_tokenizer(write, tokenizer, "Meta", "llama2", TOKENIZER_MODEL, export)


def _prepare_hermes(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_hermes(checkpoint.config)
    dtype = DTYPES.get(quantization or "")

    def write(path: Path) -> None:
        write_hermes(checkpoint, path, dtype)

    if tokenizer is None:
        return Plan(write)
    export = sentencepiece_model
    return _with_tokenizer(write, tokenizer, "Hermes", "chatml-tools", TOKENIZER_MODEL, export)


def _prepare_armgpt(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_armgpt(checkpoint.config)
    dtype = DTYPES.get(quantization or "")

    def write(path: Path) -> None:
        write_armgpt(checkpoint, path, dtype)

    if tokenizer is None:
        return Plan(write)
    return _with_tokenizer(write, tokenizer, "ArmGPT", "armgpt", TOKENIZER_JSON, armgpt_json)


def _prepare_gguf(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_gguf(checkpoint.config, quantization)
    vocabulary = None
    if tokenizer is not None:
        vocabulary = _or_leave_out(lambda: to_vocabulary(tokenizer))

    def write(path: Path) -> None:
        write_gguf(checkpoint, vocabulary, path, quantization)

    return Plan(write)


def _saved_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The files that a tokenizer writes of itself; what it refuses is told before all else."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _or_leave_out(lambda: tokenizer.save(directory))
        return {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }


def _with_tokenizer(
    write: Callable[[Path], None],
    tokenizer: Tokenizer,
    layout: str,
    chat_format: str,
    name: str,
    export: Callable[[Tokenizer], bytes],
) -> Plan:
    """A plan for a layout whose tokenizer is one file, which has no room for a chat template.

    chat_format: the one that programs of this layout, and llamita, use where none is given.
    """
    files = {name: _or_leave_out(lambda: export(tokenizer))}
    notes = []
    if tokenizer.chat_template not in (None, BUILT_IN[chat_format].template):
        files[CHAT_TEMPLATE] = str(tokenizer.chat_template).encode()
        notes.append(
            f"the chat template lies beside the weights as {CHAT_TEMPLATE}: llamita reads it "
            f"there, {layout}'s own programs use the chat format built into them."
        )
    return Plan(write, files, notes)


def _or_leave_out(make: Callable[[], _T]) -> _T:
    try:
        return make()
    except TokenizerError as error:
        hint = f"{error.hint} --no-tokenizer leaves it out." if error.hint else _NO_TOKENIZER
        raise TokenizerError(error.message, hint=hint) from error


TARGETS = {
    target.name: target
    for target in (
        Target("hf", _prepare_hf),
        Target("meta", _prepare_meta),
        Target("hermes", _prepare_hermes, "checkpoint.pt", (".pt", ".pth")),
        Target("armgpt", _prepare_armgpt, "checkpoint.pt", (".pt", ".pth")),
        Target("gguf", _prepare_gguf, "model.gguf", (".gguf",)),
    )
}
