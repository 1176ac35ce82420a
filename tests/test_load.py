"""`llamita.load` and what importing llamita costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import llamita
from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.tokenizer.train import train_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer(["the cat sat on the mat, é 🦙 " * 20], "bpe:270")
    directory = tmp_path_factory.mktemp("load") / "model"
    config = ModelConfig(270, 16, 24, 1, 2, max_position_embeddings=64, eos_token_id=1)
    save_model_directory(
        Transformer(config).initialize(0),
        directory,
        tokenizer,
        dtype=torch.bfloat16,
        generation={"eos_token_id": [0, 2]},
    )
    return directory


def test_a_model_is_loaded_with_its_tokenizer_and_stop_tokens(model: Path) -> None:
    lm = llamita.load(str(model))
    assert isinstance(lm, llamita.LM)
    assert lm.tokenizer is not None
    assert lm.tokenizer.decode(lm.tokenizer.encode("the cat é")) == "the cat é"
    assert set(lm.stop_token_ids) == {0, 1, 2}
    assert lm.logits(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 270)


def test_a_model_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    save_model_directory(Transformer(ModelConfig(20, 16, 24, 1, 2)), tmp_path)
    assert llamita.load(tmp_path).tokenizer is None


def test_the_cpu_computes_in_float32_unless_told_otherwise(model: Path) -> None:
    assert llamita.load(model, device="cpu").model.lm_head.weight.dtype == torch.float32
    for dtype in ("bfloat16", torch.bfloat16):
        lm = llamita.load(model, device="cpu", dtype=dtype)
        assert lm.model.lm_head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("override", [{"rope_theta": 5e5}, ["rope_theta=5e5"], "rope_theta=5e5"])
def test_overrides_are_a_dictionary_or_strings(override: object, model: Path) -> None:
    assert llamita.load(model, override=override).config.rope_theta == 5e5  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"backend": "tpu"}, "tpu"),
        ({"device": "warp"}, "warp"),
        ({"device": "cuda:99"}, "cuda:99"),
        ({"dtype": "int8"}, "int8"),
        ({"dtype": torch.int64}, "int64"),
        ({"override": ["rope_theta"]}, "rope_theta"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_value(
    arguments: dict[str, object], named: str, model: Path
) -> None:
    with pytest.raises(ConfigError, match=named):
        llamita.load(model, **arguments)  # type: ignore[arg-type]


def test_importing_llamita_loads_no_torch() -> None:
    code = "import sys, llamita; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
