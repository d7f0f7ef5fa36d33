"""Chat completions by OpenAI's SDK: what is streamed joins to what comes whole."""

import asyncio
import json

import openai
import pytest
from conversations import (ALIAS, DUCK, JSON_SCHEMA_FORMAT, MODEL, NAMED_WEATHER, PERSON_SCHEMA,
                           TOOLS)
from jsonschema import Draft202012Validator

CASES = {
    "plain": {},
    "alias": {"model": ALIAS},
    "cut": {"max_tokens": 3},
    "max_completion_tokens": {"max_completion_tokens": 4, "max_tokens": 9},
    "seeded": {"temperature": 1.2, "seed": 11},
    "choices": {"n": 3, "temperature": 1.5, "seed": 5, "max_tokens": 20},
    "choices with logprobs": {"n": 2, "temperature": 1, "seed": 7, "logprobs": True,
                              "top_logprobs": 2, "max_tokens": 8},
    "logprobs": {"logprobs": True, "max_tokens": 12},
    "top logprobs": {"logprobs": True, "top_logprobs": 20, "max_tokens": 6},
    "stop": {"stop": ["know", "never said"]},
    "stop with logprobs": {"stop": " not", "logprobs": True, "top_logprobs": 1},
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5, "max_tokens": 24},
    "bias": {"logit_bias": {"300": 100}, "max_tokens": 4},
    "top_p": {"temperature": 0.9, "top_p": 0.5, "seed": 3},
    "sampling of other servers": {"extra_body": {"top_k": 4, "min_p": 0.05,
                                                 "repetition_penalty": 1.1, "min_tokens": 6},
                                  "temperature": 1, "seed": 3, "max_tokens": 20},
    "token ids": {"extra_body": {"return_token_ids": True}, "max_tokens": 6},
    "roles and parts": {"messages": [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "What is 2 + 3?"}]},
        {"role": "assistant", "content": "5", "refusal": None},
        {"role": "user", "content": "And 4 + 5?"}]},
    "continued message": {"messages": [*DUCK, {"role": "assistant", "content": "A duck is"}],
                          "max_tokens": 8,
                          "extra_body": {"continue_final_message": True,
                                         "add_generation_prompt": False}},
    "schema": {"response_format": JSON_SCHEMA_FORMAT, "temperature": 1, "seed": 2},
    "schemas of choices": {"response_format": JSON_SCHEMA_FORMAT, "n": 2, "temperature": 1.3,
                           "seed": 4},
    "regex": {"extra_body": {"structured_outputs": {"regex": "[a-c]{3,9}-[0-9]{2}"}}},
    "choice": {"extra_body": {"guided_choice": ["a goose", "two swans"]}},
    "text format": {"response_format": {"type": "text"}, "max_tokens": 5},
    "no effect": {"user": "u", "metadata": {"a": "b"}, "store": False, "max_tokens": 3,
                  "service_tier": "auto", "verbosity": "low", "prompt_cache_key": "k",
                  "safety_identifier": "s", "reasoning_effort": "low"},
}


def fields_of(case):
    return {"model": MODEL, "messages": DUCK, "temperature": 0, "max_tokens": 120,
            **CASES[case]}


class Joined:
    """The choices of a stream, joined."""

    def __init__(self, chunks):
        self.contents, self.finishes, self.tokens, self.usage = {}, {}, {}, None
        for chunk in chunks:
            self.usage = chunk.usage or self.usage
            for choice in chunk.choices:
                i = choice.index
                self.contents[i] = self.contents.get(i, "") + (choice.delta.content or "")
                self.finishes[i] = choice.finish_reason or self.finishes.get(i)
                for token in choice.logprobs.content or [] if choice.logprobs else []:
                    self.tokens.setdefault(i, []).append(token)


@pytest.mark.parametrize("case", CASES)
def test_a_stream_joins_to_the_answer_that_comes_whole(openai_client, case):
    fields = fields_of(case)
    whole = openai_client.chat.completions.create(**fields)
    joined = Joined(openai_client.chat.completions.create(
        **fields, stream=True, stream_options={"include_usage": True}))
    assert len(whole.choices) == fields.get("n", 1)
    assert joined.contents == {c.index: c.message.content for c in whole.choices}
    assert joined.finishes == {c.index: c.finish_reason for c in whole.choices}
    assert joined.usage.completion_tokens == whole.usage.completion_tokens
    assert joined.usage.prompt_tokens == whole.usage.prompt_tokens
    for choice in whole.choices:
        logprobs = choice.logprobs.content if choice.logprobs else []
        assert joined.tokens.get(choice.index, []) == logprobs
        assert bool(logprobs) == fields.get("logprobs", False)
        for token in logprobs:
            assert len(token.top_logprobs) == fields.get("top_logprobs", 0)
            assert token.logprob <= 0
        if logprobs and choice.finish_reason == "length":
            spelled = b"".join(bytes(token.bytes) for token in logprobs)
            assert spelled.decode() == choice.message.content


def test_answers_are_in_their_form(openai_client):
    def contents(case):
        answer = openai_client.chat.completions.create(**fields_of(case))
        return [choice.message.content for choice in answer.choices]

    for content in contents("schemas of choices"):
        Draft202012Validator(PERSON_SCHEMA).validate(json.loads(content))
    assert contents("choice")[0] in ("a goose", "two swans")
    three = contents("choices")
    assert len(set(three)) > 1  # choices draw from streams of their own
    assert "know" not in contents("stop")[0]


def test_the_alias_answers_as_the_model(openai_client):
    answer = openai_client.chat.completions.create(**fields_of("alias"))
    assert answer.model == MODEL
    assert answer.system_fingerprint.startswith("baton-")
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


def test_json_mode_begins_an_object(openai_client):
    answer = openai_client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "JSON, please"}], temperature=0,
        response_format={"type": "json_object"}, max_tokens=20)
    assert answer.choices[0].message.content.lstrip().startswith("{")


def test_raw_responses_carry_the_request_id(openai_client):
    raw = openai_client.chat.completions.with_raw_response.create(
        **fields_of("cut"), extra_headers={"X-Request-Id": "mine.1"})
    assert raw.request_id == "mine.1"
    assert raw.parse()._request_id == "mine.1"
    assert raw.parse().id == "chatcmpl-mine.1"
    with openai_client.chat.completions.with_streaming_response.create(
            **fields_of("cut"), stream=True) as streaming:
        assert streaming.headers["content-type"].startswith("text/event-stream")
        assert sum(1 for _ in streaming.parse()) >= 3


def test_a_stream_that_is_left_early_harms_nobody(openai_client, cuts):
    cuts.allowed = True
    fields = {**fields_of("plain"), "max_tokens": 400, "extra_body": {"ignore_eos": True}}
    with openai_client.chat.completions.create(**fields, stream=True) as stream:
        next(iter(stream))
    answer = openai_client.chat.completions.create(**fields_of("cut"))
    assert answer.choices[0].finish_reason == "length"


def test_the_helper_for_streams(openai_client):
    with openai_client.chat.completions.stream(**fields_of("plain")) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    whole = openai_client.chat.completions.create(**fields_of("plain"))
    assert "".join(deltas) == final.choices[0].message.content
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_asynchronous_clients_at_once(served, recorder, openai_client):
    async def ask_all():
        async with openai.AsyncOpenAI(
                base_url=served.url + "/v1", api_key="none", max_retries=0,
                http_client=recorder.async_http_client("openai")) as client:
            async def streamed(case):
                stream = await client.chat.completions.create(
                    **fields_of(case), stream=True, stream_options={"include_usage": True})
                return Joined([chunk async for chunk in stream]).contents[0]

            async def whole(case):
                answer = await client.chat.completions.create(**fields_of(case))
                return answer.choices[0].message.content
            return await asyncio.gather(*(ask(case) for case in ("plain", "seeded", "top_p")
                                          for ask in (streamed, whole)))

    answers = asyncio.run(ask_all())
    for case, pair in zip(("plain", "seeded", "top_p"), zip(answers[::2], answers[1::2])):
        alone = openai_client.chat.completions.create(**fields_of(case))
        assert set(pair) == {alone.choices[0].message.content}


def test_models_are_listed_and_found(openai_client):
    assert [model.id for model in openai_client.models.list()] == [MODEL, ALIAS]
    for name in (MODEL, ALIAS):
        assert openai_client.models.retrieve(name).id == name


def test_tools_without_a_choice_leave_it_to_the_model(openai_client):
    answer = openai_client.chat.completions.create(
        model=MODEL, messages=DUCK, tools=TOOLS, tool_choice="none", temperature=0, max_tokens=9)
    assert answer.choices[0].message.tool_calls is None
    named = openai_client.chat.completions.create(
        model=MODEL, messages=DUCK, tools=TOOLS, tool_choice=NAMED_WEATHER, temperature=0)
    assert named.choices[0].finish_reason == "stop"
