"""Token bins of ArmGPT and nanoGPT: `train.bin` and `val.bin` as they lie, never copied.

Little-endian uint16 without a header. ArmGPT names the kind of the tokenizer too (`train_bpe.bin`)
and may put masks beside (`train_mask_bpe.bin`, one byte a token, 1 = to be learned). The files say
nothing of themselves, so each is read through once: hashed, and its ids checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

import llamita
from llamita.data.bins_tokenizer import find_tokenizer
from llamita.data.dataset import check_mask
from llamita.data.manifest import (
    MAX_UINT16_VOCABULARY,
    Manifest,
    Shard,
    Source,
    Split,
    SplitCounts,
    TokenizerInfo,
)
from llamita.errors import DataError, TokenizerError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.files import has_tokenizer

_NAME = re.compile(
    r"(?P<prefix>\w+?_)??(?P<split>train|val)(?P<mask>_mask)?(?P<kind>_char|_bpe)?"
    r"(?P<mask_behind>_mask)?\.bin"
)
_CHUNK = 1 << 22
_HEADER = (20240520).to_bytes(4, "little")
"""What the shards of llm.c and its descendants begin with: they have a header."""


@dataclass
class TokenBins:
    """The files of one set of token bins. `kind` is "char", "bpe" or "" (not told)."""

    directory: Path
    kind: str
    tokens: dict[Split, Path] = field(default_factory=dict)
    masks: dict[Split, Path] = field(default_factory=dict)


def find_token_bins(path: Path) -> TokenBins | None:
    """The token bins at `path`, a folder or one of the files; None where there are none.

    Raises:
        DataError: there are several sets, or one without a training split.
    """
    sets: dict[str, TokenBins] = {}
    folder = path if path.is_dir() else path.parent
    wanted = None
    for file in sorted(folder.glob("*.bin")):
        match = _NAME.fullmatch(file.name)
        if match is None:
            continue
        kind = match["kind"] or ""
        key = (match["prefix"] or "") + kind
        bins = sets.setdefault(key, TokenBins(folder, kind.removeprefix("_")))
        split: Split = "train" if match["split"] == "train" else "val"
        is_mask = bool(match["mask"] or match["mask_behind"])
        (bins.masks if is_mask else bins.tokens)[split] = file
        wanted = key if file == path else wanted
    if not path.is_dir():
        sets = {key: bins for key, bins in sets.items() if key == wanted}
    if not sets:
        return None
    if len(sets) > 1:
        trains = sorted(b.tokens["train"].name for b in sets.values() if "train" in b.tokens)
        raise DataError(
            f"{path.as_posix()} holds several sets of token bins: {', '.join(trains)}.",
            hint="Say which: give the path of its training file as DATA.",
        )
    [bins] = sets.values()
    for split, file in bins.masks.items():
        if split not in bins.tokens:
            raise DataError(
                f"{file.as_posix()} is a mask, but there are no {split} tokens beside it.",
                hint="Copy the token file that it belongs to beside it.",
            )
    if "train" not in bins.tokens:
        raise DataError(
            f"{bins.tokens['val'].as_posix()} has no training split beside it.",
            hint="Copy its train….bin into the same folder.",
        )
    return bins


def tokenizer_of_bins(path: Path) -> Tokenizer | None:
    """The tokenizer that lies beside the token bins at `path`, a folder or one of the files; None
    where there are none, or the folder has a tokenizer under its usual name.

    Raises:
        LlamitaError: there is none beside them, or several, or it is damaged.
    """
    bins = None if has_tokenizer(path) else find_token_bins(path)
    if bins is None:
        return None
    return find_tokenizer(bins.directory, bins.kind, bins.tokens["train"])


def read_token_bins(bins: TokenBins) -> tuple[Manifest, Tokenizer]:
    """What token bins hold, as the manifest that prepared data has, and their tokenizer.

    Raises:
        DataError: a file is empty, damaged or no token bin, a mask has another length, an id is
            outside the vocabulary, or there is no tokenizer beside them.
    """
    for path in bins.tokens.values():
        _check_size(path)
    for split, path in bins.masks.items():
        check_mask(path, bins.tokens[split].stat().st_size // 2)
    tokenizer = find_tokenizer(bins.directory, bins.kind, bins.tokens["train"])
    if tokenizer.vocab_size > MAX_UINT16_VOCABULARY:
        raise DataError(
            f"the tokenizer beside {bins.tokens['train'].as_posix()} has "
            f"{tokenizer.vocab_size:,} tokens, but token bins are uint16: ids end at 65,535.",
            hint="Put the tokenizer beside them that they were made with, or prepare the text "
            "with this one: llamita prepare TEXT… -o DATA --tokenizer PATH",
        )
    separator_id = _separator(tokenizer)
    counts, shards, sources = {}, [], []
    for split, path in bins.tokens.items():
        mask = bins.masks.get(split)
        scan = _scan(path, mask, tokenizer.vocab_size)
        counts[split] = _counts(scan, tokenizer, separator_id, mask is not None)
        sources += [_source(file, sha) for file, sha in scan.files]
        shards.append(
            Shard(
                file=path.name,
                split=split,
                tokens=counts[split].tokens,
                sha256=scan.files[0][1],
                mask=mask.name if mask else None,
                mask_sha256=scan.files[1][1] if mask else None,
            )
        )
    manifest = Manifest(
        kind="token bins",
        llamita_version=llamita.__version__,
        settings=None,
        sources=sources,
        stages=[],
        train=counts["train"],
        val=counts.get("val", SplitCounts()),
        tokenizer=TokenizerInfo(
            kind=tokenizer.kind,
            vocab_size=tokenizer.vocab_size,
            fingerprint=tokenizer.fingerprint,
        ),
        dtype="uint16",
        separator_id=separator_id,
        shards=shards,
    )
    return manifest, tokenizer


@dataclass(frozen=True)
class _Scan:
    """How often each id occurs, in all and where it is to be learned; each file with its hash."""

    all: npt.NDArray[np.int64]
    learned: npt.NDArray[np.int64]
    files: list[tuple[Path, str]]


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size == 0:
        raise DataError(f"{path.as_posix()} is empty.", hint="Make it again, or copy it again.")
    if size % 2:
        raise DataError(
            f"{path.as_posix()} has {size:,} bytes, an odd number: tokens are two bytes each.",
            hint="It is no token bin, or was not copied whole.",
        )
    with path.open("rb") as file:
        if file.read(4) == _HEADER:
            raise DataError(
                f"{path.as_posix()} begins with the header of llm.c; token bins have none.",
                hint="Cut its first 1,024 bytes off: tail -c +1025 FILE > train.bin",
            )


def _scan(path: Path, mask: Path | None, vocab_size: int) -> _Scan:
    tokens = np.memmap(path, dtype="<u2", mode="r")
    marks = None if mask is None else np.memmap(mask, dtype=np.uint8, mode="r")
    counts = np.zeros(MAX_UINT16_VOCABULARY, dtype=np.int64)
    learned = np.zeros_like(counts)
    digest, mask_digest = hashlib.sha256(), hashlib.sha256()
    for start, part in _chunks(tokens):
        digest.update(part.tobytes())
        found = np.bincount(part, minlength=len(counts))
        if found[vocab_size:].any():
            number = int(np.argmax(part >= vocab_size))
            raise DataError(
                f"{path.as_posix()} holds the token id {part[number]:,} (token number "
                f"{start + number:,}), but its tokenizer has {vocab_size:,} tokens.",
                hint="Put the tokenizer beside it that it was made with; it is uint16, without "
                "a header.",
            )
        counts += found
        if marks is not None and mask is not None:
            here = np.asarray(marks[start : start + len(part)])
            if here.max() > 1:
                number = int(np.argmax(here > 1))
                raise DataError(
                    f"the mask {mask.as_posix()} holds {here[number]} (token number "
                    f"{start + number:,}); it must be 0 or 1.",
                    hint="Is it a mask? It has one byte a token, 1 where it is to be learned.",
                )
            mask_digest.update(here.tobytes())
            learned += np.bincount(part[here == 1], minlength=len(counts))
    files = [(path, digest.hexdigest())]
    files += [(mask, mask_digest.hexdigest())] if mask is not None else []
    return _Scan(counts, learned, files)


def _chunks(
    tokens: npt.NDArray[np.uint16],
) -> Iterator[tuple[int, npt.NDArray[np.uint16]]]:
    for start in range(0, len(tokens), _CHUNK):
        yield start, np.asarray(tokens[start : start + _CHUNK])


def _counts(
    scan: _Scan, tokenizer: Tokenizer, separator_id: int | None, masked: bool
) -> SplitCounts:
    sizes = np.array([len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])
    used = slice(0, tokenizer.vocab_size)
    return SplitCounts(
        documents=1 if separator_id is None else int(scan.all[separator_id]),
        bytes=int(scan.all[used] @ sizes),
        tokens=int(scan.all.sum()),
        learned_tokens=int(scan.learned.sum()) if masked else None,
        learned_bytes=int(scan.learned[used] @ sizes) if masked else None,
    )


def _separator(tokenizer: Tokenizer) -> int | None:
    try:
        return tokenizer.separator_id
    except TokenizerError:
        return None


def _source(path: Path, sha256: str) -> Source:
    return Source(path=path.as_posix(), bytes=path.stat().st_size, sha256=sha256)
