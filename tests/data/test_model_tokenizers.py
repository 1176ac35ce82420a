"""`prepare --tokenizer MODEL`: the tokenizer of a model in any format, the same in the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.config import preset
from llamita.data.prepare import prepare
from llamita.errors import LlamitaError
from llamita.formats.huggingface import save_model_directory
from llamita.model import Transformer
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.load import tokenizer_of

TEXTS = [
    "the llama walks home slowly when rain falls near our river, past gardens and stone walls",
    "a tree sees the rain; who would blame the children for running out to meet the thunder?",
] * 20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model in every format; ArmGPT's with a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("models")
    source = _save(train_tokenizer(TEXTS, "spm:320"), folder / "run" / "latest")
    (folder / "run" / "recipe.toml").write_text("")
    controls = ["<|user|>", "<|assistant|>", "<|end|>"]
    table = [*controls, "\n", *sorted(set("".join(TEXTS)))]
    content = {"type": "char", "itos": table, "special_tokens": controls}
    (folder / "char.json").write_text(json.dumps(content))
    characters = _save(load_tokenizer(folder / "char.json"), folder / "characters")
    paths = {"hf": source, "run": folder / "run"}
    for name, place in (
        ("gguf", "gguf/model.gguf"), ("hermes", "hermes/model.pt"),
        ("armgpt", "armgpt/model.pt"), ("meta", "meta"),
    ):  # fmt: skip
        (folder / place).parent.mkdir(exist_ok=True)
        origin = characters if name == "armgpt" else source
        assert run(["convert", str(origin), str(folder / place), "--to", name, "--no-verify"]) == 0
        paths[name] = folder / place
    return paths


def _save(tokenizer: Tokenizer, path: Path) -> Path:
    roles = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = preset("tiny", tokenizer.vocab_size, **roles)
    save_model_directory(Transformer(config).initialize(0), path, tokenizer)
    return path


@pytest.mark.parametrize("name", ["hf", "run", "gguf", "hermes", "armgpt", "meta"])
def test_data_can_be_prepared_with_the_tokenizer_of_any_model(
    models: dict[str, Path], tmp_path: Path, name: str
) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    own = tokenizer_of(models[name])
    manifest = prepare(
        [tmp_path / "text.txt"], tmp_path / "data", tokenizer=str(models[name]), val_fraction=0.0
    )
    saved = load_tokenizer(tmp_path / "data")
    assert manifest.tokenizer.fingerprint == own.fingerprint == saved.fingerprint
    assert saved.chat_template == own.chat_template
    if name != "armgpt":
        ids = load_tokenizer(models["hf"]).encode_batch(TEXTS[:2])
        assert saved.encode_batch(TEXTS[:2]) == ids


def test_tokenizer_inspect_and_compare_take_models(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(TEXTS[0], encoding="utf-8")
    assert run(["tokenizer", "inspect", str(models["gguf"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vocab_size"] == 320
    paths = [str(models["gguf"]), str(models["meta"]), str(tmp_path / "text.txt")]
    assert run(["tokenizer", "compare", *paths, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tokenizers"]
    assert rows[0]["tokens"] == rows[1]["tokens"]


def test_a_model_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    save_model_directory(Transformer(preset("tiny", 40)).initialize(0), tmp_path / "model", None)
    with pytest.raises(LlamitaError, match="brings no tokenizer"):
        tokenizer_of(tmp_path / "model")


def test_the_real_model_keeps_its_ids_in_the_data(smollm2: Path, tmp_path: Path) -> None:
    own: Tokenizer = tokenizer_of(smollm2)
    own.save(tmp_path)
    saved = load_tokenizer(tmp_path)
    assert saved.fingerprint == own.fingerprint
    assert (saved.vocab_size, saved.eos_token_id) == (49152, own.eos_token_id)
