"""What verifying a conversion finds besides logits: missing tensors, and what rounding may cost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from llamita.evaluation.bits_per_byte import BitsPerByte
from llamita.formats.detect import load_checkpoint
from llamita.inference.lm import LM
from llamita.shipping import verify_conversion
from llamita.shipping.verify_conversion import FAILED, Claim
from llamita.shipping.verify_loss import compare_bits_per_byte, largest_loss
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer
from tests.shipping.conftest import run_conversion, small_model


def measured(bits_per_byte: float) -> BitsPerByte:
    """Of 100 tokens for 200 bytes: with a vocabulary of 256 a model that knows nothing pays 4."""
    return BitsPerByte(bits_per_byte, 0.01, 2.0, bytes=200, tokens=100)


@pytest.mark.parametrize(
    ("bits", "allowed"),
    [(0.0, 2.0), (1.0, 1.5), (3.0, 0.5), (3.2, 0.4), (3.9, 0.4), (4.0, 0.4), (6.0, 0.4)],
)
def test_half_of_what_a_model_knows_may_not_be_lost(bits: float, allowed: float) -> None:
    assert largest_loss(measured(bits), 256) == pytest.approx(allowed)


def test_a_loss_that_no_rounding_explains_is_a_difference(bpe_tokenizer: Tokenizer) -> None:
    """Bits per byte of a model and of one whose logits are far from it."""
    before = LM(small_model(bpe_tokenizer), bpe_tokenizer)
    broken = small_model(bpe_tokenizer, tie_word_embeddings=False)
    with torch.no_grad():
        broken.lm_head.weight.mul_(50.0)
    for after, expected in ((before, 0), (LM(broken, bpe_tokenizer), 1)):
        differences: list[str] = []
        found = compare_bits_per_byte(before, after, None, differences, [])
        assert len(differences) == expected
        assert found is not None
        assert math.isfinite(found["before"])
    assert "bits per byte rise from" in differences[0]


def test_without_a_tokenizer_nothing_is_measured(bpe_tokenizer: Tokenizer) -> None:
    lm, notes = LM(small_model(bpe_tokenizer)), []
    assert compare_bits_per_byte(lm, lm, None, [], notes) is None
    assert notes == ["no bits per byte: there is no tokenizer."]


def test_a_result_that_lacks_a_tensor_is_not_run(
    hf: Path, tmp_path: Path, no_runtime: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of a format would refuse it; what slips through is named, and no model is made."""
    source = load_checkpoint(hf)
    result = load_checkpoint(hf)
    del result.tensors["model.norm.weight"]
    monkeypatch.setattr(verify_conversion, "load_checkpoint", lambda path: result)
    found = verify_conversion.verify_conversion(
        Claim(source, checkpoint_tokenizer(source), hf, "hf")
    )
    assert found.status == FAILED
    assert found.differences == ["model.norm.weight is only in the source."]
    assert found.comparison is None
    assert found.token_ids_equal is True


def test_a_model_too_large_for_logits_has_its_tokenizer_and_chats_compared(
    hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_conversion, "available_memory", lambda: 1e6)
    report = run_conversion(hf, tmp_path / "out", target="hf")
    assert report["status"] == "self-check"
    assert report["token_ids_equal"] is True
