"""/v1/messages by Anthropic's SDK: what is streamed joins to what comes whole."""

import asyncio

import anthropic
import pytest
from conversations import ALIAS, ANTHROPIC_TOOLS, DUCK, MODEL, PERSON_SCHEMA, WEATHER_SCHEMA
from jsonschema import Draft202012Validator

COLD = {"temperature": 0}  # the SDK of today has no keyword for it
SCHEMAS = {"weather": WEATHER_SCHEMA, "record": PERSON_SCHEMA}
RESULT = [
    *DUCK,
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Look it up.", "signature": ""},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1",
         "content": [{"type": "text", "text": "12 degrees"}]},
        {"type": "text", "text": "And a goose?"}]},
]
# Fields, and the stop reason where it is certain.
CASES = {
    "plain": ({}, None),
    "alias": ({"model": ALIAS}, None),
    "cut": ({"max_tokens": 3}, "max_tokens"),
    "system": ({"system": "Be short."}, None),
    "blocks of the system": ({"system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
        {"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]}, None),
    "blocks": ({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is"}, {"type": "text", "text": "2 + 3?"}]}]}, None),
    "begun answer": ({"messages": [*DUCK, {"role": "assistant", "content": "A duck is"}],
                      "max_tokens": 8}, None),
    "stop sequence": ({"stop_sequences": [" know", "never said"]}, "stop_sequence"),
    "sampling": ({"extra_body": {"temperature": 1.0, "top_k": 1}}, None),
    "metadata": ({"metadata": {"user_id": "u"}, "service_tier": "auto", "max_tokens": 5}, None),
    "thinking off": ({"thinking": {"type": "disabled"}, "max_tokens": 6}, None),
    "history with calls": ({"messages": RESULT, "tools": ANTHROPIC_TOOLS}, None),
    "tools, none wanted": ({"tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "none"},
                            "max_tokens": 9}, None),
    "any tool": ({"tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "any"}}, "tool_use"),
    "one tool": ({"tools": ANTHROPIC_TOOLS, "tool_choice": {
        "type": "any", "disable_parallel_tool_use": True}}, "tool_use"),
    "named tool": ({"tools": ANTHROPIC_TOOLS, "tool_choice": {
        "type": "tool", "name": "weather"}}, "tool_use"),
    "auto": ({"messages": [{"role": "user", "content": "Hello!"}], "tools": ANTHROPIC_TOOLS,
              "tool_choice": {"type": "auto"}}, "end_turn"),
}


def fields_of(case):
    return {"model": MODEL, "messages": DUCK, "max_tokens": 300, "extra_body": COLD,
            **CASES[case][0]}


def told(message):
    """What a message says, without the ids of its calls, which are those of its request."""
    return [(block.type, getattr(block, "text", None), getattr(block, "name", None),
             getattr(block, "input", None)) for block in message.content]


@pytest.mark.parametrize("case", CASES)
def test_a_stream_joins_to_the_answer_that_comes_whole(anthropic_client, case):
    whole = anthropic_client.messages.create(**fields_of(case))
    with anthropic_client.messages.stream(**fields_of(case)) as stream:
        streamed = stream.get_final_message()
    assert told(streamed) == told(whole)
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.stop_sequence == whole.stop_sequence
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert CASES[case][1] in (None, whole.stop_reason)
    assert whole.model == MODEL
    assert whole._request_id and whole.id == "msg_" + whole._request_id
    calls = [block for block in whole.content if block.type == "tool_use"]
    for call in calls:
        Draft202012Validator(SCHEMAS[call.name]).validate(call.input)
    if whole.stop_reason == "tool_use":
        assert calls
        assert len(calls) == 1 or case == "any tool"
    if case == "stop sequence":
        assert whole.stop_sequence == " know"


@pytest.mark.parametrize("case", ["plain", "system", "history with calls", "any tool"])
def test_tokens_are_counted_as_they_are_used(anthropic_client, case):
    fields = fields_of(case)
    counted = anthropic_client.messages.count_tokens(
        **{key: value for key, value in fields.items() if key not in ("max_tokens", "extra_body")})
    usage = anthropic_client.messages.create(**fields).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    assert usage.cache_creation_input_tokens == 0


def test_raw_events_and_texts(anthropic_client):
    events = list(anthropic_client.messages.create(**fields_of("plain"), stream=True))
    text = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    with anthropic_client.messages.stream(**fields_of("plain")) as stream:
        assert "".join(stream.text_stream) == text


def test_the_request_id_is_the_clients(anthropic_client):
    raw = anthropic_client.messages.with_raw_response.create(
        **fields_of("cut"), extra_headers={"X-Request-Id": "mine.3"})
    assert raw.parse()._request_id == "mine.3" and raw.parse().id == "msg_mine.3"


def test_the_beta_client_sends_a_query(anthropic_client):
    message = anthropic_client.beta.messages.create(**fields_of("cut"), betas=["tools-2024-05-16"])
    assert message.stop_reason == "max_tokens"


def test_a_stream_that_is_left_early_harms_nobody(anthropic_client, cuts):
    cuts.allowed = True
    with anthropic_client.messages.create(**{**fields_of("plain"), "max_tokens": 400},
                                          stream=True) as stream:
        next(iter(stream))
    assert anthropic_client.messages.create(**fields_of("cut")).stop_reason == "max_tokens"


def test_asynchronous_clients_at_once(served, recorder, anthropic_client):
    async def ask_all():
        async with anthropic.AsyncAnthropic(
                base_url=served.url, api_key="none", max_retries=0,
                http_client=recorder.async_http_client("anthropic")) as client:
            async def streamed(case):
                async with client.messages.stream(**fields_of(case)) as stream:
                    return told(await stream.get_final_message())

            async def whole(case):
                return told(await client.messages.create(**fields_of(case)))
            return await asyncio.gather(*(ask(case) for case in ("plain", "named tool")
                                          for ask in (streamed, whole)))

    plain, plain_too, call, call_too = asyncio.run(ask_all())
    assert plain == plain_too == told(anthropic_client.messages.create(**fields_of("plain")))
    assert call == call_too


BAD = {
    "no message": {"messages": []},
    "no length": {"max_tokens": 0},
    "image": {"messages": [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "AA=="}}]}]},
    "temperature": {"extra_body": {"temperature": 1.5}},
    "tool choice of no tool": {"tools": ANTHROPIC_TOOLS,
                               "tool_choice": {"type": "tool", "name": "nobody"}},
    "broken schema": {"tools": [{"name": "f", "input_schema": {"type": "nonsense"}}],
                      "tool_choice": {"type": "any"}},
    "too long": {"max_tokens": 100000},
    "server tools": {"extra_body": {"mcp_servers": [{"type": "url", "url": "http://a",
                                                     "name": "b"}]}},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", BAD)
def test_refusals(anthropic_client, case, stream):
    fields = {"model": MODEL, "messages": DUCK, "max_tokens": 5, **BAD[case]}
    with pytest.raises(anthropic.BadRequestError) as caught:
        anthropic_client.messages.create(**fields, stream=stream)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id == caught.value.body["request_id"]
    assert case != "image" or "messages[0].content[0].type" in caught.value.api_message


def test_error_classes(anthropic_client):
    def error_of(call):
        with pytest.raises(anthropic.APIStatusError) as caught:
            call()
        return type(caught.value), caught.value.status_code, caught.value.body["error"]["type"]

    def create(**fields):
        return anthropic_client.messages.create(
            **{"model": MODEL, "messages": DUCK, "max_tokens": 5, **fields})

    assert error_of(lambda: create(model="nobody")) == (
        anthropic.NotFoundError, 404, "not_found_error")
    assert error_of(lambda: anthropic_client.messages.count_tokens(
        model="nobody", messages=DUCK)) == (anthropic.NotFoundError, 404, "not_found_error")
    assert error_of(lambda: anthropic_client.messages.batches.list())[1:] == (
        404, "not_found_error")
    assert error_of(lambda: anthropic_client.delete("/v1/messages", cast_to=object))[1:] == (
        405, "invalid_request_error")
    assert error_of(lambda: create(extra_headers={"Content-Type": "text/plain"}))[1:] == (
        415, "invalid_request_error")
    assert error_of(lambda: create(extra_headers={
        "X-Long": "y" * 7000, "X-Longer": "y" * 7000, "X-Longest": "y" * 7000}))[1:] == (
            431, "invalid_request_error")
    assert error_of(lambda: create(
        messages=[{"role": "user", "content": "duck " * 300000}]))[1] == 413
