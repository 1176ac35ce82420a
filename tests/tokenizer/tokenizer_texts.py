"""Texts and foreign models that several tests of llamita.tokenizer use."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from sentencepiece import SentencePieceTrainer

SPECS = ["bpe:500", "spm:600", "unigram:450", "char", "char:300"]

MIXED = (
    "  The quick brown fox—naïve café, 1234567.89 € and ﬁne ﬂow; 👩‍👩‍👧‍👦 🏳️‍🌈 👋🏽!\n"
    "Ողջույն աշխարհ։ Ինչպե՞ս ես, և «այո»։ مرحبا بالعالم 你好，世界。日本語 한국어 हिन्दी\n\n\n"
    'def f(x):\n\treturn {"a": [1, 2, 3], "b": None}  # comment\n\n    indented\r\n\r\n'
    "windows\r\nline\t\ttabs   trailing  \n e\u0301 vs \u00e9 \u200b \0 I'll don't ==== aaaaaaa "
)

WORDS = """
the of and to in that was his he it with is for as had you not be her on at by which have or
from this him but all she they were my are me one their so an said them we who would been
will no when there if more out up into do any your what has man could other than our some
very time upon about may its only now little like then can made should did us such great
before must two these see know over much down after first good men own never most old shall
day where those came come himself way work life without go make well through being long say
might how am too return import class self none true false value number string list 12 345 x
y
"""


def train_model(texts: list[str], **options: Any) -> bytes:
    """A foreign SentencePiece model."""
    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 500, "byte_fallback": True, "model_type": "bpe", **options},
    )
    return model.getvalue()
