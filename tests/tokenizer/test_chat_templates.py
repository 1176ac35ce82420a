"""The built-in chat formats are known by their templates, those of earlier versions too."""

from __future__ import annotations

import pytest

from llamita.errors import TokenizerError
from llamita.files import sha256_text
from llamita.tokenizer import chat_templates
from llamita.tokenizer.chat_templates import BUILT_IN, format_of, require_format

FORMER = "{{ 'as it was' }}"
# A template that changes: its former hash goes into `former_templates`, the new one here.
TEMPLATES = {
    "chatml-tools": "sha256:9e071f3ca598707a",
    "chatml-signatures": "sha256:e94ee8edb0dc0772",
    "armgpt": "sha256:c579b55a7a7fc60d",
    "llama2": "sha256:d5e7424768250522",
    "llama3": "sha256:52e8e155fc5e21ec",
}


def test_no_template_changes_unseen() -> None:
    assert {name: sha256_text(entry.template)[:23] for name, entry in BUILT_IN.items()} == TEMPLATES


def test_a_template_of_an_earlier_version_is_that_of_its_format(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert format_of(FORMER) is None
    with pytest.raises(TokenizerError, match="not that of armgpt"):
        require_format("armgpt", FORMER)
    entry = chat_templates.BuiltInFormat("armgpt", "now", (), (), (sha256_text(FORMER),))
    monkeypatch.setitem(BUILT_IN, "armgpt", entry)
    assert format_of(FORMER) == format_of("now") == "armgpt"
    require_format("armgpt", FORMER)
    with pytest.raises(TokenizerError, match="not that of llama2"):
        require_format("llama2", FORMER)
