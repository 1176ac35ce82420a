"""What a runtime answers is judged: each thing that it may say otherwise fails by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from llamita.formats.huggingface import save_model_directory
from llamita.shipping import runtimes
from llamita.shipping.runtimes import Probe, judge
from llamita.shipping.verify_chat import first_rendered
from llamita.tokenizer.base import Tokenizer
from tests.shipping.conftest import small_model

TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
Answer = dict[str, Any]
Change = Callable[[Answer, Tensor], Any]


@pytest.fixture
def probe(bpe_tokenizer: Tokenizer) -> Probe:
    """64 positions of logits with a scale of 1, two texts and a conversation."""
    tokenizer = bpe_tokenizer.with_chat_template(TURNS)
    chat = first_rendered(tokenizer)
    assert chat is not None
    generator = torch.Generator().manual_seed(0)
    return Probe(
        rows=torch.zeros(1, 64, dtype=torch.long),
        logits=torch.randn(1, 64, 30, generator=generator),
        texts=["some words", "and 12 more\n"],
        tokenizer=tokenizer,
        messages=chat[0],
        chat=chat[1],
    )


def right_answer(probe: Probe) -> Answer:
    """As a runtime gives it that agrees in everything."""
    assert probe.tokenizer is not None
    tokenizer = probe.tokenizer
    best = probe.logits[0].log_softmax(-1).topk(3)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "version": "1",
        "not_loaded": [],
        "positions": [list(map(list, zip(*both, strict=True))) for both in pairs],
        "ids": [
            [tokenizer.encode(text, special) for special in (False, True)] for text in probe.texts
        ],
        "chat": probe.chat,
    }


def judged(
    name: str, probe: Probe, monkeypatch: pytest.MonkeyPatch, change: Change
) -> tuple[list[str], list[str], dict[str, Any]]:
    """Differences, notes and figures, where the answer and its logits are changed in place."""
    answer, logits = copy.deepcopy(right_answer(probe)), probe.logits.clone()
    changed = change(answer, logits)
    logits = changed if isinstance(changed, Tensor) else logits

    def ask(name: str, path: Path, probe: Probe, directory: Path) -> Answer:
        np.save(directory / "logits.npy", logits.numpy())
        return answer

    monkeypatch.setattr(runtimes, "_ask", ask)
    differences: list[str] = []
    notes: list[str] = []
    found = judge(name, Path("model"), probe, differences, notes)
    return differences, notes, found


@pytest.mark.parametrize("name", ["transformers", "llama.cpp"])
def test_an_answer_that_agrees_passes(
    name: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    differences, notes, found = judged(name, probe, monkeypatch, lambda answer, logits: None)
    assert differences == notes == []
    assert found["token_ids_equal"] is found["chat_equal"] is True
    assert found["positions"] == 64


def first_of(position: int, index: int, gap: float) -> Change:
    """At a position the token that is `index`-th best comes first, `gap` less likely."""

    def change(answer: Answer, logits: Tensor) -> None:
        best = answer["positions"][position]
        best.insert(0, best.pop(index))
        best[0][1] -= gap

    return change


def every_gap(gap: float) -> Change:
    def change(answer: Answer, logits: Tensor) -> None:
        for best in answer["positions"]:
            best[0][1] += gap

    return change


COMMON: dict[str, tuple[Change, str]] = {
    "other ids": (lambda answer, _: answer["ids"][1][0].append(5), "tokenizes 'and 12 more"),
    "other ids with special tokens": (
        lambda answer, _: answer["ids"][0][1].append(5),
        "differently, with special tokens",
    ),
    "another chat": (lambda answer, _: answer.update(chat="x"), "renders a chat differently"),
    "a crash": (lambda answer, _: answer.update(error="it broke"), "cannot use it: it broke"),
}
OF_TRANSFORMERS: dict[str, tuple[Change, str]] = {
    "a weight without a place": (
        lambda answer, _: answer["not_loaded"].append("model.norm.weight"),
        "could not place model.norm.weight",
    ),
    "one logit beyond the limit": (
        lambda _, logits: logits[0, 7, 3].add_(2e-4) and None,
        "gives other logits",
    ),
    "a logit that is no number": (
        lambda _, logits: logits[0, 7, 3].fill_(torch.nan) and None,
        "gives other logits",
    ),
    "another vocabulary": (lambda _, logits: logits[..., :29], r"gives logits \[1, 64, 29\]"),
}
OF_LLAMA_CPP: dict[str, tuple[Change, str]] = {
    "another best token once": (first_of(9, 2, 0.0), "another token first at 1 of 64"),
    "a log-probability beyond the limit": (first_of(9, 0, 0.02), "differ by up to 0.02"),
}


@pytest.mark.parametrize("fault", COMMON)
@pytest.mark.parametrize("name", ["transformers", "llama.cpp"])
def test_each_fault_alone_fails(
    name: str, fault: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = COMMON[fault]
    differences, _, _ = judged(name, probe, monkeypatch, change)
    assert len(differences) == 1
    assert f"{name} " in differences[0]
    assert said in differences[0]


@pytest.mark.parametrize("fault", OF_TRANSFORMERS)
def test_each_fault_in_transformers_alone_fails(
    fault: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = OF_TRANSFORMERS[fault]
    differences, _, _ = judged("transformers", probe, monkeypatch, change)
    assert len(differences) == 1
    assert said.replace("\\", "") in differences[0]


@pytest.mark.parametrize("fault", OF_LLAMA_CPP)
def test_each_fault_in_llama_cpp_alone_fails(
    fault: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = OF_LLAMA_CPP[fault]
    differences, _, _ = judged("llama.cpp", probe, monkeypatch, change)
    assert len(differences) == 1
    assert said in differences[0]


def rounded(probe: Probe) -> Probe:
    return Probe(**{**vars(probe), "exact": False})


def test_where_it_rounds_the_average_counts_and_a_share(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = rounded(probe)
    for change in (first_of(9, 0, 1.0), first_of(9, 2, 0.0), every_gap(0.09)):
        assert judged("llama.cpp", probe, monkeypatch, change)[0] == []
    differences, _, _ = judged("llama.cpp", probe, monkeypatch, every_gap(0.11))
    assert len(differences) == 1
    assert "0.11 on average, where" in differences[0]

    def four(answer: Answer, logits: Tensor) -> None:
        for position in range(0, 64, 16):
            first_of(position, 2, 0.0)(answer, logits)

    differences, _, found = judged("llama.cpp", probe, monkeypatch, four)
    assert len(differences) == 1
    assert "another token first at 4 of 64 positions; at least 95.0%" in differences[0]
    assert found["top_token_agreement"] == pytest.approx(60 / 64)


def test_two_tokens_that_are_as_good_as_tied_may_change_places(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = probe.logits[0, 9].topk(2)
    probe.logits[0, 9, best.indices[1]] = best.values[0] - 5e-4
    differences, _, found = judged("llama.cpp", probe, monkeypatch, first_of(9, 1, 0.0))
    assert differences == []
    assert found["top_token_agreement"] == 1.0
    assert found["top_token_equal"] == pytest.approx(63 / 64)


@pytest.mark.parametrize("name", ["transformers", "llama.cpp"])
def test_a_tokenizer_that_was_asked_nothing_is_not_called_equal(
    name: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe(**{**vars(probe), "texts": []})
    differences, notes, found = judged(name, probe, monkeypatch, lambda answer, logits: None)
    assert differences == []
    assert found["token_ids_equal"] is None
    assert "did not judge the tokenizer" in notes[0]


def test_a_template_that_takes_no_conversation_is_said_to_be_unjudged(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe(**{**vars(probe), "chat": None, "messages": None})
    differences, notes, found = judged("llama.cpp", probe, monkeypatch, lambda answer, _: None)
    assert differences == []
    assert "chat_equal" not in found
    assert "did not judge the chat template" in notes[0]


def test_a_worker_without_texts_still_answers_for_ids_and_the_chat(
    bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """A tokenizer of few characters encodes no line of the page."""
    from llamita.shipping.runtime_worker import run_transformers

    tokenizer = bpe_tokenizer.with_chat_template(TURNS)
    save_model_directory(small_model(tokenizer), tmp_path / "model", tokenizer)
    request = {
        "path": str(tmp_path / "model"),
        "rows": [[1, 2, 3]],
        "logits": str(tmp_path / "logits.npy"),
        "tokenizes": True,
        "texts": [],
        "messages": [{"role": "user", "content": "hi"}],
    }
    answer = run_transformers(request)
    assert answer["ids"] == []
    assert answer["chat"] == "user: hi\n"


def test_a_model_without_a_tokenizer_is_judged_by_its_logits(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Probe(probe.rows, probe.logits)
    answer = {"version": "1", "not_loaded": []}

    def ask(name: str, path: Path, probe: Probe, directory: Path) -> Answer:
        np.save(directory / "logits.npy", probe.logits.numpy())
        return answer

    monkeypatch.setattr(runtimes, "_ask", ask)
    differences: list[str] = []
    found = judge("transformers", Path("model"), bare, differences, [])
    assert differences == []
    assert found.keys() == {"name", "version", "positions", "max_logit_gap"}
