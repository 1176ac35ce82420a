"""Converting a checkpoint to another format, with proof that it is the same model.

    check everything → write aside → read back and compare → verify.json → rename

What cannot be expressed is refused before anything is written. What fails its verification is kept
for a look and marked; it never looks like what passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llamita
from llamita.errors import ConfigError
from llamita.files import atomic_write_text, sha256_file
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.shipping.place import (
    Place,
    begin_replacing,
    check_free,
    check_side_files,
    check_space,
    choose_target,
    place_of,
    writing,
)
from llamita.shipping.precision import check_range, stored_size
from llamita.shipping.report import mark_name, read_reports, write_reports
from llamita.shipping.targets import Target, parse_quantization
from llamita.shipping.verify_conversion import (
    DEFAULT_MEMORY,
    UNVERIFIED,
    Claim,
    Verification,
    verify_conversion,
)
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer
from llamita.tokenizer.normalizer import normalizer_steps, without_normalizer


@dataclass(frozen=True)
class Conversion:
    """What is to be converted, and how.

    Attributes:
        target: "hf", "meta", "hermes", "armgpt" or "gguf"; None: told by the destination's suffix.
        quantization: "f32", "f16", "bf16" or (GGUF) "q8_0", "q4_0", "q4_1"; None keeps every
            number as it is.
        verify: whether to compare what was written with the source.
        keep_tokenizer: whether the tokenizer goes along.
        drop_normalizer: whether a tokenizer that changes text goes to GGUF, which cannot hold such
            steps, without them. NFC alone is left out unasked, with a note.
        tokenizer, preset, overrides: for reading the source, as for `load_checkpoint`.
        texts: documents to measure bits per byte on.
        memory: bytes that models may take while they are compared.
        overwrite: whether a former conversion at the destination may be replaced.
    """

    source: Path
    destination: Path
    target: str | None = None
    quantization: str | None = None
    verify: bool = True
    keep_tokenizer: bool = True
    drop_normalizer: bool = False
    tokenizer: Path | None = None
    preset: str | None = None
    overrides: Mapping[str, Any] | None = None
    texts: Sequence[str] | None = None
    memory: float = DEFAULT_MEMORY
    overwrite: bool = False


def convert(
    conversion: Conversion, say: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Convert, verify, and return the report that `verify.json` holds.

    A report of status "failed" is returned as well: the caller decides how to fail.

    Raises:
        LlamitaError: the source cannot be read, or the target cannot hold it; nothing was written.
    """
    target = choose_target(conversion.target, conversion.destination)
    parse_quantization(conversion.quantization, target.name)
    place = place_of(target, conversion.destination)
    check_free(place, conversion.source, conversion.overwrite)
    source = load_checkpoint(
        conversion.source,
        conversion.overrides,
        preset=conversion.preset,
        tokenizer=conversion.tokenizer,
    )
    tokenizer = checkpoint_tokenizer(source) if conversion.keep_tokenizer else None
    notes: list[str] = []
    if tokenizer is not None and target.name == "gguf":
        tokenizer = _without_normalizer(tokenizer, conversion.drop_normalizer, notes)
    plan = target.prepare(source, tokenizer, conversion.quantization)
    check_side_files(place, plan)
    sizes = (
        stored_size(tensor, conversion.quantization, target.name)
        for tensor in source.tensors.values()
    )
    check_space(place, sum(sizes) + sum(map(len, plan.side_files.values())))
    check_range(source.tensors, conversion.quantization)
    file_name = place.file_name or target.file_name
    with writing(place) as temporary:
        say(f"writing {place.path}")
        written = plan.write_all(temporary, file_name)
        files = _files(temporary)
        found = Verification(status=UNVERIFIED)
        if conversion.verify:
            found = verify_conversion(
                Claim(
                    source,
                    tokenizer,
                    temporary if file_name is None else temporary / file_name,
                    target.name,
                    conversion.quantization,
                    texts=conversion.texts,
                    lost_stops=plan.lost_stops,
                    memory=conversion.memory,
                    say=say,
                )
            )
        else:
            found.notes += written
        found.notes[:0] = [*notes, *plan.notes]
        report = _report(conversion, place, target, source, temporary, files, found)
        _show_as(report, temporary, place.folder)
        if report["differences"]:
            text = "\n".join([f"{place.path} failed its verification:", *report["differences"]])
            atomic_write_text(temporary / mark_name(place.file_name), text + "\n")
        earlier = {} if place.file_name is None else read_reports(place.folder)
        write_reports(temporary, place.file_name, report, earlier)
        begin_replacing(place, report)
    if place.file_name is not None and not report["differences"]:
        (place.folder / mark_name(place.file_name)).unlink(missing_ok=True)
    return report


def _without_normalizer(tokenizer: Tokenizer, wanted: bool, notes: list[str]) -> Tokenizer:
    steps = normalizer_steps(tokenizer)
    if not steps or not (wanted or steps == ["NFC"]):
        return tokenizer
    notes.append(
        f"the tokenizer's normalizer ({', '.join(steps)}) is left out, since GGUF cannot hold it: "
        "the token ids are the same for texts that it would leave as they are."
    )
    return without_normalizer(tokenizer)


def _files(directory: Path) -> list[str]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path.relative_to(directory).as_posix() for path in paths)


def _report(
    conversion: Conversion,
    place: Place,
    target: Target,
    source: Checkpoint,
    directory: Path,
    files: list[str],
    found: Verification,
) -> dict[str, Any]:
    weights = {
        name: {
            "sha256": sha256_file(directory / name),
            "bytes": (directory / name).stat().st_size,
        }
        for name in files
        if name.endswith((".safetensors", ".gguf", ".pt", ".pth"))
    }
    return {
        **found.as_json(),
        "llamita": llamita.__version__,
        "source": str(conversion.source),
        "source_format": source.format,
        "destination": str(place.path),
        **({} if place.file_name is None else {"file": place.file_name}),
        "target": target.name,
        "quantization": conversion.quantization,
        "parameters": sum(tensor.numel() for tensor in source.tensors.values()),
        "weights": weights,
        "files": files,
    }


def _show_as(report: dict[str, Any], temporary: Path, folder: Path) -> None:
    """Messages name the place where things will lie, not the temporary one."""
    for key in ("differences", "notes"):
        report[key] = [text.replace(str(temporary), str(folder)) for text in report[key]]


def parse_text(paths: Sequence[Path] | None) -> list[str] | None:
    """The documents of `paths`, for `Conversion.texts`."""
    if not paths:
        return None
    from llamita.text.documents import read_files
    from llamita.text.sources import find_text_files

    texts = [document.text for document in read_files(find_text_files(list(paths)).files)]
    if not any(texts):
        raise ConfigError(f"--text names no text: {', '.join(map(str, paths))} is empty.")
    return texts
