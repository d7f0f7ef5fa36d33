"""Coding agents: the shapes of their requests over ten turns; each turn finds more of its prompt
cached."""

import pytest
from conversations import ANTHROPIC_TOOLS, MODEL

SYSTEM = ("You are an agent that writes programs. Read files before you change them, keep to the "
          "style of the project, run its tests, and say in one sentence what you did. ") * 4
AGENT_TOOLS = [
    *ANTHROPIC_TOOLS,
    {"name": "read_file", "description": "Returns a file's text",
     "input_schema": {"type": "object", "properties": {"path": {"enum": ["a.cc", "b.cc"]}},
                      "required": ["path"], "additionalProperties": False,
                      "x-guidance": {"whitespace_flexible": False}}},
]


RESPONSE_TOOLS = [{"type": "function", "name": tool["name"], "description": tool.get("description"),
                   "strict": False, "parameters": tool["input_schema"]} for tool in AGENT_TOOLS]


def system_of(turn):
    return [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; turn={turn};"},
            {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]


def test_an_agent_of_messages_runs_ten_turns_and_its_cached_tokens_grow(anthropic_client):
    messages = [{"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>The date is today.</system-reminder>"},
        {"type": "text", "text": "Make the tests pass.", "cache_control": {"type": "ephemeral"}}]}]
    cached, prompts = [], []
    for turn in range(10):
        with anthropic_client.beta.messages.stream(
                model=MODEL, max_tokens=120, system=system_of(turn), messages=messages,
                tools=AGENT_TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True},
                metadata={"user_id": "session"}, betas=["claude-code-20250219"],
                extra_body={"temperature": 0}) as stream:
            answer = stream.get_final_message()
        cached.append(answer.usage.cache_read_input_tokens)
        prompts.append(answer.usage.input_tokens + cached[-1])
        assert answer.stop_reason == "tool_use"
        call, = (block for block in answer.content if block.type == "tool_use")
        messages.append({"role": "assistant", "content": [
            block.model_dump(exclude_none=True, include={"type", "id", "name", "input", "text"})
            for block in answer.content]})
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id,
             "content": f"Line {turn} of the file says that ducks swim. " * 10}]})
    check_grows(cached, prompts)


def check_grows(cached, prompts):
    assert prompts == sorted(set(prompts)), prompts
    assert cached[1:] == sorted(set(cached[1:])) and cached[1] > cached[0], (cached, prompts)
    assert cached[-1] > prompts[-2] // 2, (cached, prompts)


# One goes on from the response before, the other sends its whole conversation and stores nothing.
@pytest.mark.parametrize("goes_on", [True, False], ids=["stored", "sent whole"])
def test_an_agent_of_responses_runs_ten_turns_and_its_cached_tokens_grow(openai_client, goes_on):
    conversation = [
        {"type": "message", "role": "developer", "content": [
            {"type": "input_text", "text": "<permissions>Ask before you delete.</permissions>"}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "<environment>The date is today.</environment>"},
            {"type": "input_text", "text": "Make the tests pass."}]}]
    previous, given, cached, prompts = None, list(conversation), [], []
    for turn in range(10):
        with openai_client.responses.stream(
                model=MODEL, instructions=f"Storing: {goes_on}. " + SYSTEM, input=given if goes_on else conversation,
                tools=RESPONSE_TOOLS, tool_choice="required", parallel_tool_calls=False,
                reasoning={"effort": "medium", "summary": "auto"}, store=goes_on,
                previous_response_id=previous, include=["reasoning.encrypted_content"],
                prompt_cache_key="session", text={"verbosity": "low"}, max_output_tokens=120,
                temperature=0) as stream:
            answer = stream.get_final_response()
        cached.append(answer.usage.input_tokens_details.cached_tokens)
        prompts.append(answer.usage.input_tokens)
        call, = (item for item in answer.output if item.type == "function_call")
        given = [{"type": "function_call_output", "call_id": call.call_id,
                  "output": f"Line {turn} of the file says that ducks swim. " * 10}]
        if goes_on:
            previous = answer.id
        conversation += [item.to_dict(exclude_none=True) for item in answer.output] + given
    check_grows(cached, prompts)
