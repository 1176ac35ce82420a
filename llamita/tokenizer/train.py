"""Training tokenizers: `bpe:8192`, `spm:8192`, `unigram:8192`, `char`, `char:512`.

All are lossless for every Unicode text: no normalization, and bytes for what they do not know.
All have the same control tokens, of which `<|endoftext|>` is BOS, EOS and the separator between
documents at once: documents in training stand behind it, so a prompt stands behind it as well.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from llamita.errors import TokenizerError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.convert import template
from llamita.tokenizer.files import TOKENIZER_JSON, tokenizer_config
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from llamita.tokenizer.sample import TextSample, sample_texts
from llamita.tokenizer.spm import ENDOFTEXT, SentencePieceTokenizer
from llamita.tokenizer.surface import BYTE_CHARACTERS, BYTE_TOKENS

CONTROL_TOKENS = (ENDOFTEXT, "<|im_start|>", "<|im_end|>")
UNKNOWN_PIECE = "<unk>"
SAMPLE_BYTES = {"bpe": 256_000_000, "spm": 64_000_000, "unigram": 16_000_000}
LARGEST_VOCABULARY = 1_000_000

_SPEC = re.compile(r"(bpe|spm|unigram):(\d+)|(char)(?::(\d+))?")
_RESERVED_BY_SENTENCEPIECE = str.maketrans({"\0": " ", "▁": " ", "▅": " "})


@dataclass(frozen=True)
class TokenizerSpec:
    """A kind of tokenizer and its vocabulary size; None: as many as there are characters."""

    kind: str
    vocab_size: int | None


def parse_spec(spec: str) -> TokenizerSpec | None:
    """Read `bpe:8192` and the like; None if `spec` has another form (a path)."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        return None
    size = match[2] or match[4]
    return TokenizerSpec(match[1] or match[3], None if size is None else int(size))


def train_tokenizer(
    texts: Iterable[str],
    spec: str,
    *,
    sample_bytes: int | None = None,
    seed: int = 0,
    pre_tokenizer: str = "qwen2",
    log: Callable[[str], None] | None = None,
) -> Tokenizer:
    """Train the tokenizer `spec` (`bpe:8192`, `spm:8192`, `unigram:8192`, `char`, `char:512`).

    Of `texts`, which are streamed, at most `sample_bytes` bytes are kept in memory and learned
    from: a uniform random sample that depends on `seed` only (characters are counted over the
    whole). `pre_tokenizer` names the pattern that splits text for byte-level BPE. `log` receives
    a line that says how much text was used.

    Raises TokenizerError for a wrong spec, and for a vocabulary that the text is too small for.
    """
    wanted = parse_spec(spec)
    if wanted is None:
        raise TokenizerError(
            f"{spec!r} is neither a kind of tokenizer nor an existing path.",
            hint="Kinds are bpe:8192, spm:8192, unigram:8192 (any vocabulary size) and char.",
        )
    _check_size(wanted)
    if wanted.kind == "char":
        return _train_characters(texts, wanted.vocab_size, log)
    sample = sample_texts(texts, sample_bytes or SAMPLE_BYTES[wanted.kind], seed)
    if not sample.chunks:
        raise TokenizerError("there is no text to train a tokenizer on.")
    if log is not None:
        log(f"tokenizer {spec} learns from {_share(sample)}")
    assert wanted.vocab_size is not None
    if wanted.kind == "bpe":
        return _train_byte_level(sample, wanted.vocab_size, pre_tokenizer)
    return _train_sentencepiece(sample, wanted.kind, wanted.vocab_size)


def _train_byte_level(sample: TextSample, vocab_size: int, pre_tokenizer: str) -> Tokenizer:
    if pre_tokenizer not in PRE_TOKENIZERS:
        raise TokenizerError(
            f"there is no pre-tokenizer {pre_tokenizer!r}.",
            hint=f"Choose one of: {', '.join(PRE_TOKENIZERS)}.",
        )
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZERS[pre_tokenizer]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=BYTE_CHARACTERS,
        show_progress=False,
    )
    backend.train_from_iterator(sample, trainer)
    if backend.get_vocab_size() < vocab_size:
        raise _too_little_text(vocab_size, backend.get_vocab_size())
    return _own_tokenizer(backend)


def _train_characters(
    texts: Iterable[str], vocab_size: int | None, log: Callable[[str], None] | None
) -> Tokenizer:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.encode("utf-8", errors="replace").decode())
    if not counts:
        raise TokenizerError("there is no text to train a tokenizer on.")
    if log is not None:
        log(f"tokenizer char: {len(counts):,} different characters in {counts.total():,}")
    fixed = [*CONTROL_TOKENS, *BYTE_TOKENS]
    room = len(counts) if vocab_size is None else vocab_size - len(fixed)
    if room > len(counts):
        raise _too_little_text(room + len(fixed), len(counts) + len(fixed))
    commonest = sorted(counts, key=lambda character: (-counts[character], character))[:room]
    vocabulary = {token: index for index, token in enumerate([*fixed, *sorted(commonest)])}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(list(CONTROL_TOKENS))
    return _own_tokenizer(backend)


def _own_tokenizer(backend: Backend) -> Tokenizer:
    definition = json.loads(backend.to_str())
    definition["post_processor"] = template({0: ENDOFTEXT}, [0], [])
    config = tokenizer_config(bos_token=ENDOFTEXT, eos_token=ENDOFTEXT, add_bos=True)
    return HFTokenizer(
        json.dumps(definition, indent=2, ensure_ascii=False), {"tokenizer_config.json": config}
    )


def _train_sentencepiece(sample: TextSample, kind: str, vocab_size: int) -> Tokenizer:
    from sentencepiece import SentencePieceTrainer

    model = BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(text.translate(_RESERVED_BY_SENTENCEPIECE) for text in sample),
            model_writer=model,
            model_type="bpe" if kind == "spm" else "unigram",
            vocab_size=vocab_size,
            bos_id=0,
            bos_piece=ENDOFTEXT,
            control_symbols=list(CONTROL_TOKENS[1:]),  # they take the next free ids, 1 and 2
            unk_id=len(CONTROL_TOKENS),
            unk_piece=UNKNOWN_PIECE,
            eos_id=-1,
            pad_id=-1,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            max_sentence_length=1 << 20,
            num_threads=4,  # fixed: the sums of unigram training depend on it
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _sentencepiece_error(str(error), vocab_size) from error
    files = SentencePieceTokenizer(model.getvalue()).files()
    return HFTokenizer(files.pop(TOKENIZER_JSON).decode(), files)


def _sentencepiece_error(message: str, vocab_size: int) -> TokenizerError:
    if largest := re.search(r"value <= (\d+)", message):
        return _too_little_text(vocab_size, int(largest[1]))
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return TokenizerError(
            f"a vocabulary of {vocab_size} is too small for the characters of this text.",
            hint=f"Ask for at least {smallest[1]}.",
        )
    return TokenizerError(f"SentencePiece could not train a tokenizer: {message}")


def _check_size(spec: TokenizerSpec) -> None:
    if spec.vocab_size is None:
        return
    smallest = len(CONTROL_TOKENS) + 256 + 1
    if not smallest <= spec.vocab_size <= LARGEST_VOCABULARY:
        raise TokenizerError(
            f"a vocabulary of {spec.vocab_size} cannot be: it holds 256 bytes, "
            f"{len(CONTROL_TOKENS)} control tokens and what is learned.",
            hint=f"Ask for {smallest} to {LARGEST_VOCABULARY}.",
        )


def _too_little_text(wanted: int, largest: int) -> TokenizerError:
    return TokenizerError(
        f"the text is too small for a vocabulary of {wanted}.",
        hint=f"Ask for at most {largest}, or give more text.",
    )


def _share(sample: TextSample) -> str:
    if sample.used_bytes == sample.total_bytes:
        return f"all {sample.total_bytes:,} bytes of text"
    return f"a sample of {sample.used_bytes:,} of {sample.total_bytes:,} bytes of text"
