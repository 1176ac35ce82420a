"""What a checkpoint can be converted to: one entry a format, all refusals before any writing.

`prepare` checks the weights' config, the tokenizer and the types of numbers against the target and
returns a `Plan`; `check_range` looks at the numbers where they are narrowed. Then a plan's `write`
refuses nothing but NaN or infinity on their way to GGUF, where they would only be copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch

from llamita.errors import ConfigError, TokenizerError
from llamita.files import atomic_write_bytes
from llamita.formats import huggingface
from llamita.formats.armgpt import check_armgpt, write_armgpt
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.config_write import config_to_json
from llamita.formats.foreign_config import refuse_for
from llamita.formats.gguf_vocabulary import fit_vocabulary, name_roles
from llamita.formats.gguf_write import check_gguf, write_gguf
from llamita.formats.hermes import check_hermes, write_hermes
from llamita.formats.meta import check_meta, write_meta
from llamita.shipping.ends import unsaid_ends, with_one_end
from llamita.shipping.precision import BLOCKS, DTYPES
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.chat_files import CONFIG as TOKENIZER_CONFIG
from llamita.tokenizer.chat_files import DEFAULT, LEGACY, TEMPLATE
from llamita.tokenizer.export import armgpt_json, sentencepiece_files, tiktoken_ranks
from llamita.tokenizer.files import TOKENIZER_JSON, TOKENIZER_MODEL
from llamita.tokenizer.gguf_vocabulary import to_vocabulary

_T = TypeVar("_T")
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
        write: writes the weights; its argument is the new file, or a folder that is there. It may
            return what became of single tensors, which verifying tells as well.
        side_files: the other files by name, with their content.
        notes: what the reader of the report should know.
        lost_stops: stop tokens of the source that the target has no place for; a note names them.
    """

    write: Callable[[Path], list[str] | None]
    side_files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lost_stops: frozenset[int] = frozenset()

    def write_all(self, directory: Path, file_name: str | None) -> list[str]:
        """Write everything into `directory`, which is there; returns what `write` does."""
        notes = self.write(directory if file_name is None else directory / file_name)
        for name, data in self.side_files.items():
            atomic_write_bytes(directory / name, data)
        return notes or []


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

    return Plan(write, {} if tokenizer is None else _or_leave_out(tokenizer.files))


def _prepare_meta(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_meta(checkpoint.config)
    dtype = DTYPES.get(quantization or "")
    complete = checkpoint.with_end_ids(checkpoint.end_ids)

    def write(directory: Path) -> None:
        write_meta(complete, directory, dtype)

    if tokenizer is None:
        return Plan(write)
    is_bpe = tokenizer.kind == "bpe"
    chat_format = "llama3" if is_bpe else "llama2"
    export = _ranks if is_bpe else sentencepiece_files
    return Plan(write, *_layout_files(tokenizer, "Meta", chat_format, export))


def _prepare_hermes(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    complete = with_one_end(checkpoint, tokenizer, "Hermes")
    check_hermes(complete.config)
    dtype = DTYPES.get(quantization or "")

    def write(path: Path) -> None:
        write_hermes(complete, path, dtype)

    if tokenizer is None:
        return Plan(write)
    return Plan(write, *_layout_files(tokenizer, "Hermes", "chatml-tools", sentencepiece_files))


def _prepare_armgpt(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_armgpt(checkpoint.config)
    dtype = DTYPES.get(quantization or "")

    def write(path: Path) -> None:
        write_armgpt(checkpoint, path, dtype)

    lost = unsaid_ends(checkpoint, tokenizer)
    if tokenizer is not None:
        if lost:
            reason = "only its tokenizer says what ends a text"
            refuse_for("ArmGPT", "eos_token_id", list(lost), reason)
        return Plan(write, *_layout_files(tokenizer, "ArmGPT", "armgpt", _armgpt))
    note = f"the tokens {list(lost)}, which end a text, are lost: ArmGPT's config names none."
    return Plan(write, notes=[note] if lost else [], lost_stops=frozenset(lost))


def _prepare_gguf(
    checkpoint: Checkpoint, tokenizer: Tokenizer | None, quantization: str | None
) -> Plan:
    check_gguf(checkpoint.config, quantization)
    _refuse_float64(checkpoint, quantization)
    complete = checkpoint.with_end_ids(checkpoint.end_ids)
    vocabulary = None
    if tokenizer is None:
        name_roles({}, complete.config)
    else:
        vocabulary = _or_leave_out(lambda: to_vocabulary(tokenizer))
        fit_vocabulary(vocabulary, complete.config)
    return Plan(lambda path: write_gguf(complete, vocabulary, path, quantization))


def _refuse_float64(checkpoint: Checkpoint, quantization: str | None) -> None:
    wide = [name for name, t in checkpoint.tensors.items() if t.dtype == torch.float64]
    if wide and quantization is None:
        raise ConfigError(
            f"{wide[0]} is stored in float64; GGUF holds it in float32 at most.",
            hint="--quant f32 rounds it.",
        )


def _layout_files(
    tokenizer: Tokenizer,
    layout: str,
    chat_format: str,
    export: Callable[[Tokenizer], dict[str, bytes]],
) -> tuple[dict[str, bytes], list[str]]:
    """The files, and notes, of a layout that has no room for a chat template.

    chat_format: the one that programs of this layout, and llamita, use where none is given.
    """
    files, notes = _or_leave_out(lambda: export(tokenizer)), []
    if TOKENIZER_CONFIG in files:
        notes.append(
            f"{TOKENIZER_CONFIG} says which control tokens frame a text: llamita reads it there, "
            f"{layout}'s own programs do as they always do."
        )
    templates = dict(tokenizer.chat_templates)
    default = templates.pop(DEFAULT, None)
    if default is not None and (templates or default != BUILT_IN[chat_format].template):
        files[TEMPLATE] = default.encode()
        notes.append(
            f"the chat template lies beside the weights as {TEMPLATE}: llamita reads it "
            f"there, {layout}'s own programs use the chat format built into them."
        )
    if templates:
        named = [{"name": name, "template": text} for name, text in templates.items()]
        files[LEGACY] = (json.dumps({"chat_template": named}, indent=2) + "\n").encode()
        notes.append(
            f"{LEGACY} holds the chat templates {', '.join(templates)}, for llamita alone."
        )
    return files, notes


def _ranks(tokenizer: Tokenizer) -> dict[str, bytes]:
    return {TOKENIZER_MODEL: tiktoken_ranks(tokenizer)}


def _armgpt(tokenizer: Tokenizer) -> dict[str, bytes]:
    return {TOKENIZER_JSON: armgpt_json(tokenizer)}


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
