"""/v1/responses by OpenAI's SDK: streamed and whole, tools, parsed output, and what is stored."""

import json

import openai
import pytest
from conversations import DUCK, MODEL, PERSON_SCHEMA, WEATHER_SCHEMA
from jsonschema import Draft202012Validator
from test_openai_errors import BAD, TYPE, check_refusal
from test_openai_parsed import Bird, Weather

WEATHER = {"type": "function", "name": "weather", "description": "The weather of a city",
           "parameters": WEATHER_SCHEMA, "strict": True}
RECORD = {"type": "function", "name": "record", "parameters": PERSON_SCHEMA, "strict": False}
NOTE = {"type": "custom", "name": "note", "description": "Writes a word down",
        "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]{3,9}"}}
FREE_NOTE = {"type": "custom", "name": "note", "format": {"type": "text"}}
NUMBERS = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1500}

CASES = {
    "text": {},
    "cut": {"max_output_tokens": 3},
    "seeded": {"temperature": 1.2, "top_p": 0.9, "extra_body": {"seed": 11}},
    "instructions": {"instructions": "Be short.", "max_output_tokens": 8},
    "items and parts": {"max_output_tokens": 8, "input": [
        {"role": "developer", "content": "Be short."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "2 + 3?"},
                                                        {"type": "input_text", "text": "Well?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "weather",
         "arguments": "{\"city\":\"Rome\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "12 degrees"},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "5", "annotations": []}]},
        {"role": "user", "content": "And 4 + 5?"}]},
    "logprobs": {"include": ["message.output_text.logprobs"], "max_output_tokens": 6},
    "top logprobs": {"top_logprobs": 3, "max_output_tokens": 6},
    "schema": {"text": {"format": {"type": "json_schema", "name": "person", "strict": True,
                                   "schema": PERSON_SCHEMA}}, "temperature": 1,
               "extra_body": {"seed": 2}},
    "told again": {"max_output_tokens": 3, "metadata": {"a": "b"}, "user": "u", "store": False,
                   "safety_identifier": "s", "prompt_cache_key": "k", "truncation": "auto",
                   "reasoning": {"effort": "low", "summary": "auto"}, "service_tier": "auto",
                   "include": ["reasoning.encrypted_content"],
                   "text": {"format": {"type": "text"}, "verbosity": "low"}},
    "required": {"tools": [WEATHER, RECORD], "tool_choice": "required"},
    "named": {"tools": [WEATHER, RECORD], "tool_choice": {"type": "function", "name": "record"}},
    "allowed": {"tools": [WEATHER, RECORD], "parallel_tool_calls": False, "tool_choice": {
        "type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "weather"}]}},
    "none": {"tools": [WEATHER, NOTE], "tool_choice": "none", "max_output_tokens": 8},
    "custom": {"tools": [NOTE], "tool_choice": {"type": "custom", "name": "note"}},
    "free custom": {"tools": [FREE_NOTE], "tool_choice": {"type": "custom", "name": "note"}},
}


def fields_of(more):
    return {"model": MODEL, "input": DUCK, "temperature": 0, "max_output_tokens": 300, **more}


def told_of(response):
    """What an answer says, without its ids."""
    items = [item.model_dump(exclude={"id", "call_id"}) for item in response.output]
    return response.status, items, response.usage.output_tokens, response.incomplete_details


def check_calls(items):
    schemas = {"weather": WEATHER_SCHEMA, "record": PERSON_SCHEMA}
    for item in items:
        if item.type == "function_call":
            Draft202012Validator(schemas[item.name]).validate(json.loads(item.arguments))


@pytest.mark.parametrize("case", CASES)
def test_a_stream_ends_with_the_answer_that_comes_whole(openai_client, case):
    fields = fields_of(CASES[case])
    whole = openai_client.responses.create(**fields)
    *events, last = openai_client.responses.create(**fields, stream=True)
    assert told_of(last.response) == told_of(whole)
    if whole.status == "completed":
        check_calls(whole.output)
        assert whole.output
    assert "".join(event.delta for event in events
                   if event.type == "response.output_text.delta") == whole.output_text
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens


def test_the_answers_of_the_cases_are_as_asked(openai_client):
    def answer(case):
        return openai_client.responses.create(**fields_of(CASES[case]))

    cut = answer("cut")
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert cut.usage.output_tokens == 3
    Draft202012Validator(PERSON_SCHEMA).validate(json.loads(answer("schema").output_text))
    tokens = answer("top logprobs").output[0].content[0].logprobs
    assert len(tokens) == 6 and all(len(token.top_logprobs) == 3 for token in tokens)
    told = answer("told again")
    assert (told.metadata, told.user, told.prompt_cache_key, told.store, told.truncation) == (
        {"a": "b"}, "u", "k", False, "auto") and told.reasoning.effort == "low"
    named, = answer("named").output
    assert (named.type, named.name) == ("function_call", "record")
    allowed, = answer("allowed").output
    assert allowed.name == "weather"
    note, = answer("custom").output
    assert note.type == "custom_tool_call" and note.input.isalpha() and 3 <= len(note.input) <= 9


@pytest.mark.parametrize("seed", [1, 2])
def test_output_is_parsed_into_a_class(openai_client, seed):
    fields = {"model": MODEL, "input": DUCK, "text_format": Bird, "temperature": 1,
              "max_output_tokens": 400, "extra_body": {"seed": seed}}
    parsed = openai_client.responses.parse(**fields).output_parsed
    assert isinstance(parsed, Bird)
    with openai_client.responses.stream(**fields) as stream:
        assert stream.get_final_response().output_parsed == parsed


def test_arguments_are_parsed_into_a_class(openai_client):
    answer = openai_client.responses.parse(**fields_of({
        "tools": [openai.pydantic_function_tool(Weather, name="weather")],
        "tool_choice": "required", "parallel_tool_calls": False}))
    assert isinstance(answer.output[0].parsed_arguments, Weather)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_calls_and_results_go_on_from_a_stored_response(openai_client, stream):
    previous, given = None, DUCK
    for _ in range(3):
        fields = fields_of({"input": given, "tools": [WEATHER, NOTE], "tool_choice": "required",
                            "parallel_tool_calls": False, "previous_response_id": previous})
        if stream:
            with openai_client.responses.stream(**fields) as events:
                answer = events.get_final_response()
        else:
            answer = openai_client.responses.create(**fields)
        assert answer.previous_response_id == previous
        previous = answer.id
        given = [{"type": call.type + "_output", "call_id": call.call_id, "output": "12 degrees"}
                 for call in answer.output]
        assert given
    # What a client sends again whole is the same prompt.
    last = openai_client.responses.create(**fields_of({
        "input": [*given, {"role": "user", "content": "Well?"}], "previous_response_id": previous,
        "max_output_tokens": 5}))
    items = openai_client.responses.input_items.list(last.id, order="asc").data
    assert [item.type for item in items] == [given[0]["type"], "message"]
    assert items[1].content[0].text == "Well?"


def test_a_stored_response_is_asked_for_and_deleted(openai_client):
    first = openai_client.responses.create(**fields_of({"max_output_tokens": 4,
                                                        "metadata": {"k": "v"}}))
    assert openai_client.responses.retrieve(first.id) == first
    ids = [item.id for item in openai_client.responses.input_items.list(first.id, limit=1)]
    assert len(ids) == 1
    with pytest.raises(BAD) as caught:
        openai_client.responses.cancel(first.id)
    assert caught.value.param == "response_id"
    openai_client.responses.delete(first.id)
    for call in (openai_client.responses.retrieve, openai_client.responses.delete,
                 openai_client.responses.cancel, openai_client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as missing:
            call(first.id)
        assert (missing.value.type, missing.value.param) == (TYPE, "response_id")
    with pytest.raises(openai.NotFoundError) as missing:
        openai_client.responses.create(**fields_of({"previous_response_id": first.id}))
    assert (missing.value.code, missing.value.param) == (
        "previous_response_not_found", "previous_response_id")


def test_a_running_response_is_cancelled(openai_client):
    schema = {"type": "object", "properties": {"numbers": NUMBERS}, "required": ["numbers"]}
    tool = {"type": "function", "name": "f", "parameters": schema, "strict": True}
    fields = fields_of({"tools": [tool], "tool_choice": "required", "max_output_tokens": 3500})
    cancelled = None
    for _ in range(5):  # A client that the machine holds up may ask too late, which is refused.
        asked = None
        for event in openai_client.responses.create(**fields, stream=True):
            if event.type == "response.function_call_arguments.delta" and asked is None:
                asked = event.item_id.replace("fc_", "resp_")[:-2]
                try:
                    cancelled = openai_client.responses.cancel(asked)
                except BAD as error:
                    assert "This response has ended" in str(error)
        if cancelled is not None:
            break
    assert cancelled.status == "cancelled"
    assert (event.type, event.response.status) == ("response.incomplete", "cancelled")
    stored = openai_client.responses.retrieve(cancelled.id)
    assert stored == event.response and stored.output[0].status == "incomplete"
    assert openai_client.responses.cancel(cancelled.id).status == "cancelled"  # again


ERRORS = {
    "nothing": ({"input": openai.omit}, "missing_required_parameter", "input"),
    "image": ({"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]},
              "unsupported_parameter", "input[0].content[0].type"),
    "bad arguments": ({"input": [{"type": "function_call", "call_id": "a", "name": "f",
                                  "arguments": "{\"a"}]}, "invalid_value", "input[0].arguments"),
    "tool of the server": ({"tools": [{"type": "web_search"}]}, "unsupported_parameter",
                           "tools[0].type"),
    "one name for two": ({"tools": [NOTE, {**WEATHER, "name": "note"}]}, "invalid_value",
                         "tools[1].name"),
    "choice of no tool": ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "f"}},
                          "invalid_value", "tool_choice.name"),
    "choice without tools": ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    "schema": ({"text": {"format": {"type": "json_schema", "name": "a",
                                    "schema": {"type": "nonsense"}}}}, "invalid_value",
               "text.format.schema"),
    "background": ({"background": True}, "unsupported_parameter", "background"),
    "conversation": ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
    "temperature": ({"temperature": 2.5}, "invalid_value", "temperature"),
    "too long": ({"max_output_tokens": 100000}, "context_length_exceeded", "max_output_tokens"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", ERRORS)
def test_responses_are_refused_by_name(openai_client, case, stream):
    more, code, param = ERRORS[case]
    fields = fields_of({"max_output_tokens": 5, **more})
    check_refusal(lambda: openai_client.responses.create(**fields, stream=stream), code, param)
