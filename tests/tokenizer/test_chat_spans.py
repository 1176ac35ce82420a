"""What the assistant says, token by token, and what ends its turns."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from llamita.errors import TokenizerError
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat, EncodedChat
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer import chat_cases as cases
from tests.tokenizer.chat_cases import PLAIN, SYSTEM, TOOLS, WEATHER

HERMES_CALL = (
    '<tool_call>{"name": "weather", "arguments": {"city": "Երևան", "unit": "°C <b>"}}</tool_call>'
)

# Phi-3's kind: an end of text where no answer is asked for, so behind every prefix as well.
PHI = """\
{% for m in messages %}{{ '<|' + (m.role if m.role == 'assistant' else 'user') + '|>\\n' }}\
{{ m.content + '<|end|>\\n' }}{% for c in m.tool_calls %}{{ c | tojson }}<|end|>{% endfor %}\
{% endfor %}{{ '<|assistant|>\\n' if add_generation_prompt else eos_token }}"""


def chat_of(tokenizer: Tokenizer, template: str) -> ChatFormat:
    return ChatFormat.of(tokenizer.with_chat_template(template))


def said(tokenizer: Tokenizer, encoded: EncodedChat) -> list[str]:
    """The runs of tokens that the mask marks, as text."""
    runs: list[list[int]] = []
    before = False
    for token_id, marked in zip(encoded.token_ids, encoded.assistant_mask, strict=True):
        if marked and not before:
            runs.append([])
        if marked:
            runs[-1].append(token_id)
        before = marked
    return [tokenizer.decode(run, skip_special_tokens=False) for run in runs]


@pytest.mark.parametrize(
    ("template", "turns"),
    [
        (cases.CHATML, [" Բարև: 你好 🦙<|im_end|>", "It is 108.<|im_end|>"]),
        (cases.GENERATION, [" Բարև: 你好 🦙<|im_end|>", "It is 108.<|im_end|>"]),
        (cases.LLAMA3, ["Բարև: 你好 🦙<|eot_id|>", "It is 108.<|eot_id|>"]),
        (cases.LLAMA2, [" Բարև: 你好 🦙 <|end_of_text|>", " It is 108. <|end_of_text|>"]),
        (
            BUILT_IN["chatml-tools"].template,
            [" Բարև: 你好 🦙<|im_end|>", "It is 108.<|im_end|>"],
        ),
        (
            BUILT_IN["chatml-signatures"].template,
            [" Բարև: 你好 🦙<|im_end|>", "It is 108.<|im_end|>"],
        ),
        (BUILT_IN["armgpt"].template, [" Բարև: 你好 🦙<|end|>", "It is 108.<|end|>"]),
        (PHI, [" Բարև: 你好 🦙<|end|>", "It is 108.<|end|>"]),
        (PHI.replace("\\n", ""), [" Բարև: 你好 🦙<|end|>", "It is 108.<|end|>"]),
        (
            BUILT_IN["llama2"].template,
            [" Բարև: 你好 🦙 <|end_of_text|>", " It is 108. <|end_of_text|>"],
        ),
        (BUILT_IN["llama3"].template, ["Բարև: 你好 🦙<|eot_id|>", "It is 108.<|eot_id|>"]),
    ],
)
def test_spans_are_what_the_assistant_said_and_its_turn_ends(
    template: str, turns: list[str], chat_tokenizer: HFTokenizer
) -> None:
    chat = chat_of(chat_tokenizer, template)
    encoded = chat.encode_with_spans(PLAIN)
    assert encoded.token_ids == chat.encode(PLAIN)
    assert said(chat_tokenizer, encoded) == turns
    last = chat.encode_with_spans(PLAIN, last_turn_only=True)
    assert said(chat_tokenizer, last) == turns[1:]
    assert encoded.labels == [
        token_id if marked else -100
        for token_id, marked in zip(encoded.token_ids, encoded.assistant_mask, strict=True)
    ]


def test_the_mask_of_generation_blocks_is_that_of_transformers(
    chat_tokenizer: HFTokenizer, peer: PreTrainedTokenizerBase
) -> None:
    chat = chat_of(chat_tokenizer, cases.GENERATION)
    for messages in (PLAIN, SYSTEM, PLAIN[:2]):
        theirs = peer.apply_chat_template(
            messages,
            chat_template=cases.GENERATION,
            return_assistant_tokens_mask=True,
            return_dict=True,
        )
        ours = chat.encode_with_spans(messages)
        assert ours.token_ids == theirs["input_ids"]
        assert [int(marked) for marked in ours.assistant_mask] == theirs["assistant_masks"]


def test_case_13_a_block_without_the_end_of_its_turn_gets_it(chat_tokenizer: HFTokenizer) -> None:
    template = cases.GENERATION.replace(
        "<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>"
    )
    chat = chat_of(chat_tokenizer, template)
    turns = said(chat_tokenizer, chat.encode_with_spans(PLAIN))
    assert turns == [" Բարև: 你好 🦙<|im_end|>", "It is 108.<|im_end|>"]


@pytest.mark.parametrize("name", ["chatml-tools", "chatml-signatures"])
def test_tool_calls_are_said_and_their_results_are_not(
    name: str, chat_tokenizer: HFTokenizer
) -> None:
    chat = chat_of(chat_tokenizer, BUILT_IN[name].template)
    turns = said(chat_tokenizer, chat.encode_with_spans(TOOLS, [WEATHER]))
    assert turns == [f"{HERMES_CALL}<|im_end|>", "Yes, 31 °C.<|im_end|>"]


def test_tool_calls_written_as_text_become_calls(chat_tokenizer: HFTokenizer) -> None:
    chat = chat_of(chat_tokenizer, BUILT_IN["chatml-tools"].template)
    message = {"role": "assistant", "content": f"Let me see.\n{HERMES_CALL}"}
    encoded = chat.encode_with_spans([TOOLS[0], message], [WEATHER])
    assert chat_tokenizer.special_tokens["<tool_call>"] in encoded.token_ids
    assert said(chat_tokenizer, encoded) == [f"Let me see.\n{HERMES_CALL}<|im_end|>"]
    user = {"role": "user", "content": HERMES_CALL}
    assert chat_tokenizer.special_tokens["<tool_call>"] not in chat.encode([user])
    broken = {"role": "assistant", "content": "<tool_call>{nothing}</tool_call>"}
    assert chat_tokenizer.special_tokens["<tool_call>"] not in chat.encode([broken])


def test_case_14_the_prompt_of_generation_is_the_beginning_of_the_turn(
    chat_tokenizer: HFTokenizer,
) -> None:
    for entry in BUILT_IN.values():
        chat = chat_of(chat_tokenizer, entry.template)
        prompt = chat.encode(PLAIN[:3], add_generation_prompt=True)
        encoded = chat.encode_with_spans(PLAIN, last_turn_only=True)
        assert encoded.token_ids[: len(prompt)] == prompt
        assert encoded.assistant_mask.index(True) == len(prompt)


def test_case_14_a_conversation_or_template_without_the_assistant_is_an_error(
    chat_tokenizer: HFTokenizer,
) -> None:
    with pytest.raises(TokenizerError, match="nothing to learn from"):
        chat_of(chat_tokenizer, cases.CHATML).encode_with_spans(PLAIN[:1])
    said = "{{ message.content }}<|im_end|>"
    mute = cases.GENERATION.replace(f"{said}{{% endgeneration %}}", f"{{% endgeneration %}}{said}")
    with pytest.raises(TokenizerError, match="marks nothing that the assistant says"):
        chat_of(chat_tokenizer, mute).encode_with_spans(PLAIN)


def test_a_system_message_that_wanders_is_an_error_that_names_the_turn(
    chat_tokenizer: HFTokenizer,
) -> None:
    """As with Mistral's, which puts the instructions into the last question."""
    chat = chat_of(
        chat_tokenizer,
        "{% for m in messages[1:] %}{% if m.role == 'user' and loop.revindex <= 2 %}"
        "{{ messages[0].content }}{% endif %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}"
        "{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}",
    )
    with pytest.raises(TokenizerError, match="turn of message 2, or what stands before"):
        chat.encode_with_spans(SYSTEM)
    encoded = chat.encode_with_spans(SYSTEM, last_turn_only=True)
    assert said(chat_tokenizer, encoded) == ["It is 108.<|end_of_text|>"]


def test_reasoning_that_is_dropped_later_is_an_error_that_says_what_to_do(
    chat_tokenizer: HFTokenizer,
) -> None:
    chat = chat_of(chat_tokenizer, cases.QWEN_THINKING)
    answer = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}
    messages: list[dict[str, Any]] = [PLAIN[0], answer, PLAIN[2], answer]
    with pytest.raises(TokenizerError, match="turn of message 1") as caught:
        chat.encode_with_spans(messages)
    assert "last_turn_only" in (caught.value.hint or "")
    encoded = chat.encode_with_spans(messages, last_turn_only=True)
    assert said(chat_tokenizer, encoded) == ["<think>\nHm.\n</think>\n\nYes.<|im_end|>"]
    assert encoded.token_ids.count(chat_tokenizer.special_tokens["<think>"]) == 1


@pytest.mark.parametrize(
    ("template", "names"),
    [
        (cases.CHATML, ["<|im_end|>"]),
        (cases.LLAMA2, ["<|end_of_text|>"]),
        (cases.LLAMA3, ["<|eot_id|>"]),
        (cases.QWEN, ["<|im_end|>"]),
        (cases.QWEN_THINKING, ["<|im_end|>"]),
        (BUILT_IN["chatml-tools"].template, ["<|im_end|>"]),
        (BUILT_IN["chatml-signatures"].template, ["<|im_end|>"]),
        (BUILT_IN["armgpt"].template, ["<|end|>"]),
        (PHI, ["<|end|>"]),
        (BUILT_IN["llama2"].template, ["<|end_of_text|>"]),
        (BUILT_IN["llama3"].template, ["<|eot_id|>"]),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", ["<|end_of_text|>"]),
    ],
)
def test_case_13_what_ends_a_turn_is_found(
    template: str, names: list[str], chat_tokenizer: HFTokenizer
) -> None:
    chat = chat_of(chat_tokenizer, template)
    assert chat.turn_end_ids == tuple(chat_tokenizer.special_tokens[name] for name in names)
    assert set(chat.encode_with_spans(PLAIN[:2]).labels) & set(chat.turn_end_ids)


def test_case_11_there_is_one_bos_whoever_adds_it(
    chat_tokenizer: HFTokenizer, trained: Tokenizer, llama_model: bytes
) -> None:
    bos = chat_tokenizer.special_tokens["<|begin_of_text|>"]
    llama3 = BUILT_IN["llama3"].template
    for template, count in ((llama3, 1), (cases.CHATML, 0), ("{{ bos_token }}" + llama3, 1)):
        assert chat_of(chat_tokenizer, template).encode(PLAIN).count(bos) == count
    own = trained.bos_token_id
    for template in (cases.CHATML, "{{ bos_token }}" + cases.CHATML):
        encoded = chat_of(trained, template).encode_with_spans(PLAIN)
        assert encoded.token_ids.count(own) == 1  # type: ignore[arg-type]
        assert encoded.token_ids[0] == own
        assert not encoded.assistant_mask[0]
