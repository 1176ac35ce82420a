"""Are two tokenizers the same? Their tables, what they do to text, and what they are written as.

A page of text touches a small part of a vocabulary, so every token is compared. The definitions as
they are written prove less: a `.model` file and a `tokenizer.json` can say the same in other words.
Where they differ, text made of the whole vocabulary shows whether merges and splitting act alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from llamita.errors import LlamitaError
from llamita.tokenizer.base import Tokenizer

PAGE = """\
The quick brown fox jumps over the lazy dog, doesn't it? "Yes," she said — 'twas so.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ։
Le cœur déçu mais l'âme plutôt naïve; Zwölf Boxkämpfer jagen Viktor. Ťažký kôň.
我能吞下玻璃而不伤身体。 いろはにほへと 안녕하세요 שלום עולם مرحبا بالعالم नमस्ते दुनिया
1234567890 3.14159 2024-02-29 1,000,000 0x1F −40 °C ½ ² € £ ¥ 👋🏽 🇦🇲 👩‍👩‍👧 🤖
def f(x):\n\tif x >= 2 and not x % 2:\n\t\treturn {"a": [x ** 2, None]}  # odd?\n\n\n
    <|im_end|> <s> </s> [INST] <tool_call> trailing spaces   \t\tand tabs
"""
_TOKENS_OF_A_LINE = 64
_ROLES = ("bos_token_id", "eos_token_id", "pad_token_id", "strips_leading_space")


def compare_tokenizers(
    a: Tokenizer | None, b: Tokenizer | None, differences: list[str], notes: list[str]
) -> bool | None:
    """Whether both give the same ids for every text, as far as can be told; None without any.

    What speaks against it is added to `differences`, what only differs in form to `notes`.
    """
    if a is None and b is None:
        return None
    if a is None or b is None:
        differences.append(f"only {'B' if a is None else 'A'} has a tokenizer.")
        return False
    difference = _compare_page(a, b) or _compare_tables(a, b, notes)
    if difference is None and _fingerprint(a) != _fingerprint(b):
        difference = _compare_text_changes(a, b) or _compare_vocabulary_text(a, b, notes)
    if difference is not None:
        differences.append(difference)
        return False
    for role in _ROLES:
        left, right = getattr(a, role), getattr(b, role)
        if left != right:
            notes.append(f"the tokenizer's {role} is {left} in A and {right} in B.")
    return True


def encode(tokenizer: Tokenizer, text: str, special: bool) -> list[int] | str:
    """The ids, or the refusal of a tokenizer that lacks characters of the text."""
    try:
        return tokenizer.encode(text, add_special_tokens=special)
    except LlamitaError as error:
        return error.message


def _compare_page(a: Tokenizer, b: Tokenizer) -> str | None:
    for text in (*PAGE.splitlines(keepends=True), PAGE):
        for special in (False, True):
            left, right = encode(a, text, special), encode(b, text, special)
            if left != right:
                place = "with" if special else "without"
                return _other_ids(text, f", {place} special tokens", left, right)
    return None


def _compare_tables(a: Tokenizer, b: Tokenizer, notes: list[str]) -> str | None:
    if a.vocab_size != b.vocab_size:
        return f"the tokenizer has {a.vocab_size:,} tokens in A and {b.vocab_size:,} in B."
    if a.special_tokens != b.special_tokens:
        names = sorted(set(a.special_tokens.items()) ^ set(b.special_tokens.items()))
        if not _are_spare(a, b, {token_id for _, token_id in names}):
            return f"the special tokens differ: {_clip(names)}."
        notes.append(f"{len(names) // 2} spare special tokens have other names: {_clip(names)}.")
    others = [i for i in range(a.vocab_size) if a.token_bytes(i) != b.token_bytes(i)]
    if not others:
        return None
    first = others[0]
    return (
        f"{len(others):,} token ids stand for other bytes, first {first}: "
        f"{_clip(a.token_bytes(first))} in A, {_clip(b.token_bytes(first))} in B."
    )


def _are_spare(a: Tokenizer, b: Tokenizer, ids: set[int]) -> bool:
    """Whether these ids are control tokens of both that one of them only keeps in reserve.

    Meta's Llama 3 and its HuggingFace form call some of the same reserved ids differently.
    """
    left, right = ({i: name for name, i in t.special_tokens.items()} for t in (a, b))
    return all(
        i in left and i in right and ("reserved" in left[i] or "reserved" in right[i]) for i in ids
    )


def _compare_text_changes(a: Tokenizer, b: Tokenizer) -> str | None:
    """A normalizer may act on some character that no probe holds."""
    try:
        left, right = a.text_changes, b.text_changes
    except LlamitaError:  # it cannot be written as a tokenizer.json; text must do
        return None
    if left == right:
        return None
    return (
        f"text is normalized by {_clip(left or 'nothing')} in A, {_clip(right or 'nothing')} in B."
    )


def _compare_vocabulary_text(a: Tokenizer, b: Tokenizer, notes: list[str]) -> str | None:
    texts = _vocabulary_text(a)
    pairs = zip(texts, _encode_all(a, texts), _encode_all(b, texts), strict=True)
    for text, left, right in pairs:
        if left != right:
            return _other_ids(text, "", left, right)
    notes.append(
        f"the tokenizers are written differently, but all {a.vocab_size:,} tokens agree, and so do "
        f"the ids of {len(texts):,} texts made of them."
    )
    return None


def _vocabulary_text(tokenizer: Tokenizer) -> list[str]:
    """Each token's own text, once and twice (which shows what merges first), then lines of all of
    them in a shuffled order."""
    words = [
        tokenizer.token_bytes(token_id).decode("utf-8", errors="ignore")
        for token_id in range(tokenizer.vocab_size)
    ]
    words = [word for word in words if word]
    shuffled = random.Random(0).sample(words, len(words))
    starts = range(0, len(shuffled), _TOKENS_OF_A_LINE)
    doubled = [word + word for word in words]
    return [
        *words,
        *doubled,
        *("".join(shuffled[start : start + _TOKENS_OF_A_LINE]) for start in starts),
    ]


def _encode_all(tokenizer: Tokenizer, texts: list[str]) -> Sequence[list[int] | str]:
    try:
        return tokenizer.encode_batch(texts)
    except LlamitaError:
        return [encode(tokenizer, text, special=False) for text in texts]


def _fingerprint(tokenizer: Tokenizer) -> str | None:
    try:
        return tokenizer.fingerprint
    except LlamitaError:  # a SentencePiece model that no tokenizer.json can express
        return None


def _other_ids(text: str, how: str, left: object, right: object) -> str:
    return (
        f"the text {text[:40]!r} has other token ids{how}: {_clip(left)} in A, {_clip(right)} in B."
    )


def _clip(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
