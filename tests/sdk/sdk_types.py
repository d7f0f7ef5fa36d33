"""Answers and events against the types of the pinned SDKs: pydantic in strict mode, and no member
that an SDK does not know but the additions that docs/API.md tells of."""

import dataclasses
import functools
import re
from typing import Any, List, Literal, Optional

import anthropic.types as anthropic
import openai.types as openai
import openai.types.responses as responses
from anthropic.types.shared.error_response import ErrorResponse
from openai.types import chat
from openai.types.chat import chat_completion, chat_completion_chunk
from openai.types.shared.error_object import ErrorObject
from pydantic import BaseModel, TypeAdapter, create_model


class OpenAIError(BaseModel):
    error: ErrorObject


# Anthropic's API tells 413 so; the SDK raises ContentTooLargeError for it and has no type.
class TooLarge(BaseModel):
    type: Literal["request_too_large"]
    message: str


class TooLargeResponse(ErrorResponse):
    error: TooLarge


class ModelList(BaseModel):  # the SDK reads it as a page
    object: Literal["list"]
    data: List[openai.Model]


class ChatList(BaseModel):
    object: Literal["list"]
    data: List[chat.ChatCompletion]
    first_id: Optional[str]
    last_id: Optional[str]
    has_more: bool


# The SDK's type of messages has the assistant's role alone; those that a chat answers are others'.
_StoredMessage = create_model(
    "StoredMessage", __base__=chat.ChatCompletionStoreMessage,
    role=(Literal["system", "user", "assistant", "tool"], ...),
    tool_call_id=(Optional[str], None))


class StoredMessageList(ChatList):
    data: List[_StoredMessage]


class DeletedResponse(BaseModel):  # the SDK drops it
    id: str
    object: Literal["response"]
    deleted: Literal[True]


# In streams of completions the SDK's type wants a finish reason in every chunk, which OpenAI does
# not send either: null until the end.
_ChoiceInChunk = create_model(
    "ChoiceInChunk", __base__=openai.CompletionChoice,
    finish_reason=(Optional[Literal["stop", "length", "content_filter"]], ...))
_CompletionChunk = create_model(
    "CompletionChunk", __base__=openai.Completion, choices=(List[_ChoiceInChunk], ...))


@dataclasses.dataclass(frozen=True)
class Types:
    answer: Any
    event: Any = None


# Every method and path that the suite calls with success; * is an id.
_TYPES = {
    "POST /v1/completions": Types(openai.Completion, _CompletionChunk),
    "POST /v1/chat/completions": Types(chat.ChatCompletion, chat.ChatCompletionChunk),
    "GET /v1/chat/completions": Types(ChatList),
    "GET /v1/chat/completions/*": Types(chat.ChatCompletion),
    "POST /v1/chat/completions/*": Types(chat.ChatCompletion),
    "DELETE /v1/chat/completions/*": Types(chat.ChatCompletionDeleted),
    "GET /v1/chat/completions/*/messages": Types(StoredMessageList),
    "POST /v1/responses": Types(responses.Response, responses.ResponseStreamEvent),
    "GET /v1/responses/*": Types(responses.Response),
    "DELETE /v1/responses/*": Types(DeletedResponse),
    "POST /v1/responses/*/cancel": Types(responses.Response),
    "GET /v1/responses/*/input_items": Types(responses.ResponseItemList),
    "GET /v1/models": Types(ModelList),
    "GET /v1/models/*": Types(openai.Model),
    "POST /v1/messages": Types(anthropic.Message, anthropic.RawMessageStreamEvent),
    "POST /v1/messages/count_tokens": Types(anthropic.MessageTokensCount),
}

# Members of answers that the SDKs do not know, as vLLM and llama.cpp spell them.
_ADDITIONS = {
    openai.Completion: {"timings", "baton_digest"},
    openai.CompletionChoice: {"stop_reason", "token_ids", "prompt_token_ids"},
    chat.ChatCompletion: {"timings", "prompt_token_ids"},
    chat_completion.Choice: {"stop_reason", "token_ids"},
    chat.ChatCompletionMessage: {"reasoning", "reasoning_content"},
    chat.ChatCompletionChunk: {"timings", "prompt_token_ids"},
    chat_completion_chunk.Choice: {"stop_reason", "token_ids"},
    chat_completion_chunk.ChoiceDelta: {"reasoning", "reasoning_content"},
    responses.Response: {"store"},  # as OpenAI answers
    responses.ResponseFunctionCallArgumentsDoneEvent: {"name"},  # earlier SDKs want it
    openai.Model: {"root", "parent", "max_model_len", "meta"},
    ErrorObject: {"n_prompt_tokens", "n_ctx"},
}


def _unknown_members(value, path="$"):
    if isinstance(value, BaseModel):
        known = set()
        for model, members in _ADDITIONS.items():
            if isinstance(value, model):
                known |= members
        for name in value.model_extra or {}:
            if name not in known:
                yield f"{path}.{name}"
        for name in type(value).model_fields:
            yield from _unknown_members(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unknown_members(inner, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _unknown_members(inner, f"{path}.{name}")


@functools.lru_cache(maxsize=None)  # what pydantic makes of a large union takes a second
def _adapter(model):
    return TypeAdapter(model)


def _check(model, text):
    unknown = list(_unknown_members(_adapter(model).validate_json(text, strict=True)))
    assert not unknown, f"members that neither SDK nor docs/API.md has: {unknown}"


def _types_of(method, path):
    pattern = re.sub(r"/(resp_|chatcmpl-|baton-)[^/]+", "/*", path)
    found = _TYPES.get(f"{method} {pattern}")
    assert found is not None, f"no types of the SDKs stand in sdk_types.py for {method} {path}"
    return found


def check_answer(method, path, text):
    _check(_types_of(method, path).answer, text)


def check_event(method, path, text):
    _check(_types_of(method, path).event, text)


def check_error(path, status, text):
    if not path.startswith("/v1/messages"):
        _check(OpenAIError, text)
    else:
        _check(TooLargeResponse if status == 413 else ErrorResponse, text)
