"""A run of fine-tuning goes on as it was begun, whatever a later version would begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llamita.errors import Interrupted, TrainingError
from llamita.files import sha256_text
from llamita.tokenizer.chat import BUILT_IN
from llamita.training.finetuning.chat_data import Chats
from llamita.training.finetuning.finetune import prepare_finetuning
from tests.training.finetuning.runs import finetune
from tests.training.runs import stop_after


@pytest.mark.parametrize("asked", [None, "chatml-signatures"])
def test_a_run_goes_on_though_its_chat_format_is_another_in_a_later_version(
    asked: str | None,
    base: Path,
    chats_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, former = tmp_path / "run", BUILT_IN["chatml-signatures"]
    with pytest.raises(Interrupted):
        finetune(
            base, chats_path, out, steps=6, chat_format="chatml-signatures",
            observer=stop_after(3),
        )  # fmt: skip
    later = replace(
        former,
        template=former.template.replace("Tools:", "Functions:"),
        tool_tokens=("<a_new_token>", *former.tool_tokens),
        former_templates=(sha256_text(former.template),),
    )
    monkeypatch.setitem(BUILT_IN, "chatml-signatures", later)
    with pytest.raises(TrainingError, match="was chatml-signatures and is now chatml-tools"):
        prepare_finetuning(base, Chats([chats_path]), out, chat_format="chatml-tools")
    prepared = prepare_finetuning(base, Chats([chats_path]), out, chat_format=asked)
    assert prepared.train().summary.steps == 6
    assert (out / "best" / "chat_template.jinja").read_text() == former.template
