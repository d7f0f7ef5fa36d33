"""Tools and parsed output by OpenAI's SDK."""

import json
from enum import Enum
from typing import Literal

import openai
import pytest
from conversations import DUCK, MODEL, NAMED_WEATHER, PERSON_SCHEMA, TOOLS, WEATHER_SCHEMA
from jsonschema import Draft202012Validator
from pydantic import BaseModel

SCHEMAS = {"weather": WEATHER_SCHEMA, "record": PERSON_SCHEMA}
ALLOWED_WEATHER = {"type": "allowed_tools",
                   "allowed_tools": {"mode": "required", "tools": [NAMED_WEATHER]}}
# How many calls, of what, and the finish reason.
CHOICES = {
    "required": ({"tool_choice": "required"}, None, "tool_calls"),
    "one required": ({"tool_choice": "required", "parallel_tool_calls": False}, None,
                     "tool_calls"),
    "named": ({"tool_choice": NAMED_WEATHER}, "weather", "stop"),
    "allowed": ({"tool_choice": ALLOWED_WEATHER, "parallel_tool_calls": False}, "weather",
                "tool_calls"),
    "drawn": ({"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5,
               "seed": 3}, None, "tool_calls"),
}


class Color(str, Enum):
    RED = "red"
    BLUE = "blue"


class Bird(BaseModel):
    # Compact JSON: the small model would fill the answer with white space.
    model_config = {"json_schema_extra": {"x-guidance": {"whitespace_flexible": False}}}
    color: Color
    swims: bool
    other: Literal["wing", "foot"]


class Weather(BaseModel):
    model_config = Bird.model_config
    color: Color


def fields_of(more):
    return {"model": MODEL, "messages": DUCK, "tools": TOOLS, "temperature": 0,
            "max_tokens": 300, **more}


def check_calls(calls, only):
    assert calls
    for call in calls:
        assert call.id and call.type == "function"
        assert only in (None, call.function.name)
        Draft202012Validator(SCHEMAS[call.function.name]).validate(
            json.loads(call.function.arguments))
    assert len({call.id for call in calls}) == len(calls)


@pytest.mark.parametrize("case", CHOICES)
def test_demanded_calls_are_made_whole_and_streamed(openai_client, case):
    more, only, finish = CHOICES[case]
    choice = openai_client.chat.completions.create(**fields_of(more)).choices[0]
    check_calls(choice.message.tool_calls, only)
    assert choice.finish_reason == finish and choice.message.content is None
    if not more.get("parallel_tool_calls", case != "named"):
        assert len(choice.message.tool_calls) == 1
    with openai_client.chat.completions.stream(**fields_of(more)) as stream:
        stream.until_done()
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == finish
    assert ([(call.function.name, call.function.arguments)
             for call in streamed.message.tool_calls] ==
            [(call.function.name, call.function.arguments)
             for call in choice.message.tool_calls])


def test_calls_and_results_go_on_as_a_conversation(openai_client):
    messages = list(DUCK)
    for _ in range(3):
        answer = openai_client.chat.completions.create(
            **fields_of({"messages": messages, "tool_choice": "required"})).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}
                     for call in answer.tool_calls]
    final = openai_client.chat.completions.create(
        **fields_of({"messages": messages, "tool_choice": "none", "max_tokens": 20}))
    assert final.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("seed", [1, 2])
def test_output_is_parsed_into_a_class(openai_client, seed):
    fields = {"model": MODEL, "messages": DUCK, "response_format": Bird, "temperature": 1,
              "seed": seed, "max_tokens": 400}
    parsed = openai_client.chat.completions.parse(**fields).choices[0].message.parsed
    assert isinstance(parsed, Bird)
    with openai_client.chat.completions.stream(**fields) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.parsed == parsed


def test_a_cut_output_is_an_error_of_the_parser(openai_client):
    with pytest.raises(openai.LengthFinishReasonError):
        openai_client.chat.completions.parse(model=MODEL, messages=DUCK, response_format=Bird,
                                             temperature=0, max_tokens=3)


@pytest.mark.parametrize("seed", [1, 2])
def test_arguments_of_strict_tools_are_parsed_into_a_class(openai_client, seed):
    tools = [openai.pydantic_function_tool(Weather, name="weather")]
    answer = openai_client.chat.completions.parse(
        model=MODEL, messages=DUCK, tools=tools, tool_choice="required", temperature=1, seed=seed,
        parallel_tool_calls=False, max_tokens=300)
    call = answer.choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Weather)
