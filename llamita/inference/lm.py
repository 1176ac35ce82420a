"""`llamita.LM`: a model with its tokenizer, for people who write Python.

lm = llamita.load("path")
lm.generate("Once upon", max_tokens=64, temperature=0).text
for piece in lm.stream("Once upon"): ...
lm.chat([{"role": "user", "content": "12*9?"}]).message
lm.logits(input_ids); lm.loss(input_ids)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor

from llamita.errors import GenerationError
from llamita.inference import scores
from llamita.inference.asking import build_requests, model_stop_ids
from llamita.inference.chat_requests import Asked, ChatSettings, answered, ask
from llamita.inference.chat_stream import ChatStream
from llamita.inference.chats import fit_chat
from llamita.inference.engine import Engine
from llamita.inference.params import SamplingParams
from llamita.inference.prompts import read_prompts
from llamita.inference.request import Request, TokenEvent
from llamita.inference.results import Generation, collect
from llamita.inference.stopping import context_length
from llamita.inference.tool_rules import ToolRules
from llamita.inference.torch_backend import TorchBackend, read_cache_dtype
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tools.schemas import tool_schemas

Prompt: TypeAlias = "str | list[int] | tuple[int, ...] | Tensor"
Prompts: TypeAlias = "list[str] | list[list[int]]"
Chat: TypeAlias = "Sequence[Mapping[str, Any]]"

__all__ = ["LM", "Generation"]


class LM:
    """A language model ready for use, from several threads at once if need be.

    tokenizer: None where the checkpoint has none. generation_config: the checkpoint's
    `generation_config.json`, for its stop tokens. kv_cache_dtype: "float32" or "bfloat16"; None:
    that of the weights. compile: whether generating runs through `torch.compile`.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer | None = None,
        generation_config: Mapping[str, Any] | None = None,
        *,
        kv_cache_dtype: str | torch.dtype | None = None,
        compile: bool = False,
    ) -> None:
        self.model = model
        self.config = model.config
        self.tokenizer = tokenizer
        self._generation_config = generation_config or {}
        self._kv_cache_dtype = read_cache_dtype(kv_cache_dtype)
        self._compile = compile
        self._engine: Engine | None = None
        self._making_engine = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which make an engine of their own."""
        own = ("_engine", "_making_engine", "chat_format")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _engine=None, _making_engine=threading.Lock())

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return self.model.lm_head.weight.device

    @property
    def engine(self) -> Engine:
        """What generates: shared by all calls, so that they run as one batch and reuse prefixes."""
        with self._making_engine:
            if self._engine is None:
                backend = TorchBackend(
                    self.model, kv_cache_dtype=self._kv_cache_dtype, compile=self._compile
                )
                self._engine = Engine(backend, self.tokenizer)
            return self._engine

    def logits(self, input_ids: Tensor | Sequence[Sequence[int]]) -> Tensor:
        """Float32 logits [B, T, V] of each token's successor, for ids [B, T]."""
        return scores.logits(self.model, input_ids)

    def loss(
        self,
        input_ids: Tensor | Sequence[Sequence[int]],
        labels: Tensor | Sequence[Sequence[int]] | None = None,
    ) -> Tensor:
        """Mean cross-entropy in nats per labelled token, a float32 scalar.

        labels [B, T] default to input_ids and stand at the place of the token they name (the shift
        happens inside); -100 is not counted. 0 where nothing is labelled.
        """
        return scores.loss(self.model, input_ids, labels)

    @overload
    def generate(self, prompt: Prompt, **settings: Any) -> Generation: ...
    @overload
    def generate(self, prompt: Prompts, **settings: Any) -> list[Generation]: ...
    def generate(self, prompt: Prompt | Prompts, **settings: Any) -> Generation | list[Generation]:
        """Continue a prompt, or a list of prompts as one batch.

        A prompt is text, which gets the tokenizer's BOS if it has one, or token ids, taken as they
        are. An empty one ("" or, in ids, `[[]]`) starts a document; an empty list gives `[]`. The
        settings are the fields of `SamplingParams`, and `sampler`, a preset of them; or they come
        ready made as `params`. In a batch every prompt gets what it would get alone with the same
        seed. A prompt that fills the context gives no token and finishes with "length".

        Raises:
            GenerationError: a wrong setting or prompt, by name and value.
        """
        requests, is_batch = self._requests(prompt, settings)
        results = collect(requests, self.engine.run(requests))
        return results if is_batch else results[0]

    @overload
    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[str]: ...
    @overload
    def stream(self, prompt: Prompts, **settings: Any) -> Iterator[tuple[int, str]]: ...
    def stream(
        self, prompt: Prompt | Prompts, **settings: Any
    ) -> Iterator[str] | Iterator[tuple[int, str]]:
        """`generate` piece by piece, as soon as each is certain: the pieces joined are its `text`.

        One prompt gives pieces; a list of prompts gives pairs (index of the prompt, piece).
        """
        requests, is_batch = self._requests(prompt, settings)
        if self.tokenizer is None:
            raise GenerationError(
                "this model has no tokenizer, so there is no text to stream.",
                hint="`stream_events` and `generate` give token ids.",
            )
        events = (event for event in self.engine.run(requests) if event.text)
        if is_batch:
            return ((event.row, event.text) for event in events)
        return (event.text for event in events)

    def stream_events(self, prompt: Prompt | Prompts, **settings: Any) -> Iterator[TokenEvent]:
        """`generate` token by token, with ids, finish reasons and log-probabilities.

        A row gives up its place when the iterator is closed or forgotten.
        """
        requests, _ = self._requests(prompt, settings)
        return self.engine.run(requests)

    def request(self, prompt: Prompt, **settings: Any) -> Request:
        """What `generate` would ask the engine for one prompt: for `engine.add`."""
        requests, is_batch = self._requests(prompt, settings)
        if is_batch:
            raise GenerationError(f"there are {len(requests)} prompts.", hint="Give one.")
        return requests[0]

    @overload
    def chat(self, messages: Chat, tools: Any = None, **settings: Any) -> Generation: ...
    @overload
    def chat(
        self, messages: Sequence[Chat], tools: Any = None, **settings: Any
    ) -> list[Generation]: ...
    def chat(
        self, messages: Chat | Sequence[Chat], tools: Any = None, **settings: Any
    ) -> Generation | list[Generation]:
        """Answer a conversation, or a list of conversations as one batch.

        Messages are as in OpenAI's API. The answer is the generation's `message`; its `text` is the
        same without control tokens. With overflow "drop-oldest-turn" a conversation too long for
        the context and max_tokens loses its oldest turns (`fit_chat`), and `dropped_messages` says
        how many messages that were. The settings are those of `generate`, and:

        tools: what may be called: descriptions as in OpenAI's API, `llamita.tools.Tool`s or Python
            functions; or a `Toolbox`. For several conversations one for all, or a list of them.
        tool_choice: "auto": text or calls; "required": calls; "none": text; {"type": "function",
            "function": {"name": …}}: one call of that tool.
        parallel_tool_calls: whether an answer may hold several calls.
        constrain_tools: whether only calls of these tools, with arguments that fit their schemas,
            can be written; without it tool_choice and parallel_tool_calls are wishes.
        template_variables: reach the chat template (`enable_thinking`, …).

        Raises:
            GenerationError: the model has no tokenizer or no chat template, or a wrong setting.
            TokenizerError: a wrong message, or one that the template refuses.
            ToolError: a function that cannot be a tool.
        """
        asked = self._ask(messages, tools, settings)
        requests = self._build(asked.prompts, asked.params, asked.rules)
        given = collect(requests, self.engine.run(requests))
        results = [
            answered(self.chat_format, result, dropped, calls)
            for result, dropped, calls in zip(given, asked.dropped, asked.calls, strict=True)
        ]
        return results if asked.is_batch else results[0]

    def stream_chat(self, messages: Chat, tools: Any = None, **settings: Any) -> ChatStream:
        """`chat` for one conversation, piece by piece; its `generation` comes at the end."""
        asked = self._ask(messages, tools, settings)
        if asked.is_batch:
            raise GenerationError(
                f"there are {len(asked.prompts)} conversations.", hint="Give one to stream."
            )
        requests = self._build(asked.prompts, asked.params, asked.rules)
        return ChatStream(
            requests[0],
            self.engine.run(requests),
            self.chat_format,
            dropped_messages=asked.dropped[0],
            calls=asked.calls[0],
        )

    def chat_prompt(
        self, messages: Chat, tools: Any = None, **template_variables: Any
    ) -> list[int]:
        """The ids with which the model is asked for the next answer (for `generate`, `stream`)."""
        schemas = tool_schemas(tools)
        return self.chat_format.encode(messages, schemas, True, **template_variables)

    def fit_chat(
        self,
        messages: Chat,
        tools: Any = None,
        *,
        max_tokens: int | None = None,
        **template_variables: Any,
    ) -> tuple[list[int], int]:
        """`chat_prompt`, shortened by its oldest turns until max_tokens (None: one) fit behind it.

        The second value is how many messages went. System messages and the last turn never do.
        Raises GenerationError where the last turn leaves no room.
        """
        limit = SamplingParams(max_tokens=max_tokens).max_tokens

        def encode(chat: Chat) -> list[int]:
            return self.chat_prompt(chat, tools, **template_variables)

        return fit_chat(encode, messages, limit, context_length(self.config))

    @cached_property
    def chat_format(self) -> ChatFormat:
        """How the model is spoken to; GenerationError, with the way out, where that is not known.

        Raises TokenizerError where the model's template is damaged.
        """
        if self.tokenizer is None:
            raise GenerationError(
                "this model has no tokenizer, so it cannot chat.",
                hint="Add the tokenizer's files to the model's directory.",
            )
        if self.tokenizer.chat_template is None:
            raise GenerationError(
                "this model has no chat template: it was not taught to chat, or its template is "
                "lost.",
                hint="Use `generate`, or put the template of its training into its directory as "
                "chat_template.jinja.",
            )
        return ChatFormat.of(self.tokenizer)

    @cached_property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Every id that the checkpoint calls an end, and those that end a turn of its chats."""
        return model_stop_ids(self.config, self._generation_config, self.tokenizer)

    def _ask(self, messages: Any, tools: Any, settings: Mapping[str, Any]) -> Asked:
        given = ChatSettings.of(settings)
        params, variables = given.params, given.variables

        def fit(chat: Chat, own: Any) -> tuple[list[int], int]:
            if params.overflow == "drop-oldest-turn":
                return self.fit_chat(chat, own, max_tokens=params.max_tokens, **variables)
            return self.chat_prompt(chat, own, **variables), 0

        return ask(messages, tools, given.use, self.chat_format, fit, params)

    def _requests(self, prompt: object, settings: Mapping[str, Any]) -> tuple[list[Request], bool]:
        prompts, is_batch = read_prompts(prompt, self.tokenizer, self.config)
        return self._build(prompts, SamplingParams.from_settings(settings)), is_batch

    def _build(
        self,
        prompts: list[list[int]],
        params: SamplingParams,
        rules: Sequence[ToolRules | None] | None = None,
    ) -> list[Request]:
        own = () if params.stop_token_ids is not None else self.stop_token_ids
        return build_requests(prompts, params, self.tokenizer, self.config, own, rules)
