"""Refusals as OpenAI's SDK tells them: its class, and .code, .type and .param of the answer."""

import openai
import pytest
from conversations import DUCK, MODEL, NAMED_WEATHER, TOOLS

BAD = openai.BadRequestError
TYPE = "invalid_request_error"

# Fields of a chat, then code and param.
CHAT = {
    "no messages": ({"messages": []}, "invalid_value", "messages"),
    "unknown role": ({"messages": [{"role": "robot", "content": "a"}]}, "invalid_value",
                     "messages[0].role"),
    "image": ({"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]},
              "unsupported_parameter", "messages[0].content[0].type"),
    "audio": ({"messages": [{"role": "user", "content": [
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]}]},
              "unsupported_parameter", "messages[0].content[0].type"),
    "bad arguments in the history": ({"messages": [*DUCK, {"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"a"}}]}]},
        "invalid_value", "messages[1].tool_calls[0].function.arguments"),
    "temperature": ({"temperature": 2.5}, "invalid_value", "temperature"),
    "top_p": ({"top_p": 0}, "invalid_value", "top_p"),
    "max_tokens": ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    "n 0": ({"n": 0}, "invalid_value", "n"),
    "n above the limit": ({"n": 13}, "invalid_value", "n"),
    "n as text": ({"extra_body": {"n": "2"}}, "invalid_type", "n"),
    "top_logprobs 21": ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
    "top_logprobs alone": ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    "bias of no token": ({"logit_bias": {"a": 1}}, "invalid_value", "logit_bias.a"),
    "bias of 101": ({"logit_bias": {"5": 101}}, "invalid_value", "logit_bias.5"),
    "priority": ({"extra_body": {"priority": 3}}, "unsupported_parameter", "priority"),
    "audio out": ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    "guided_json 7": ({"extra_body": {"guided_json": 7}}, "invalid_type", "guided_json"),
    "broken regex": ({"extra_body": {"regex": "[.*"}}, "invalid_value", "regex"),
    "broken schema": ({"response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "schema": {"type": "nonsense"}}}}, "invalid_value",
        "response_format.json_schema.schema"),
    "schema elsewhere": ({"response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "schema": {"$ref": "https://example.com/s.json"}}}}, "invalid_value",
        "response_format.json_schema.schema"),
    "lookahead": ({"extra_body": {"structured_outputs": {"regex": "(?=a)b"}}}, "invalid_value",
                  "structured_outputs.regex"),
    "empty grammar": ({"extra_body": {"structured_outputs": {"grammar": ""}}}, "invalid_value",
                      "structured_outputs.grammar"),
    "bias of an unknown id": ({"logit_bias": {"99999999": 1}}, "invalid_value",
                              "logit_bias.99999999"),
    "unknown format": ({"response_format": {"type": "hiccup"}}, "invalid_value",
                       "response_format.type"),
    "tool choice without tools": ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    "tool choice of no tool": ({"tools": TOOLS[1:], "tool_choice": NAMED_WEATHER},
                               "invalid_value", "tool_choice.function.name"),
    "tool of no form": ({"tools": [{"x": 1}]}, "missing_required_parameter", "tools[0].type"),
    "too long": ({"max_tokens": 100000}, "context_length_exceeded", "max_tokens"),
}
COMPLETIONS = {
    "unknown token": ({"prompt": [1, 99999999]}, "invalid_value", "prompt[1]"),
    "17 prompts": ({"prompt": ["a"] * 17}, "invalid_value", "prompt"),
    "best_of below n": ({"n": 3, "best_of": 2}, "invalid_value", "best_of"),
    "best_of streamed": ({"best_of": 2, "stream": True}, "invalid_value", "best_of"),
    "logprobs 21": ({"logprobs": 21}, "invalid_value", "logprobs"),
    "suffix": ({"suffix": "end"}, "unsupported_parameter", "suffix"),
}


def check_refusal(call, code, param):
    with pytest.raises(BAD) as caught:
        call()
    error = caught.value
    assert (error.status_code, error.type, error.code, error.param) == (400, TYPE, code, param)
    assert error.request_id == error.response.headers["x-request-id"]
    return error


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", CHAT)
def test_chats_are_refused_by_name(openai_client, case, stream):
    fields, code, param = CHAT[case]
    fields = {"model": MODEL, "messages": DUCK, "max_tokens": 5, **fields}
    check_refusal(lambda: openai_client.chat.completions.create(**fields, stream=stream), code,
                  param)


@pytest.mark.parametrize("case, keyword", {
    "broken schema": "/type", "schema elsewhere": r"/\$ref", "lookahead": "look-around",
    "n above the limit": "1 to 12", "bias of 101": "100", "priority": "priority"}.items())
def test_refusals_name_the_keyword_or_the_range(openai_client, case, keyword):
    fields, code, param = CHAT[case]
    fields = {"model": MODEL, "messages": DUCK, "max_tokens": 5, **fields}
    with pytest.raises(BAD, match=keyword):
        openai_client.chat.completions.create(**fields)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", COMPLETIONS)
def test_completions_are_refused_by_name(openai_client, case, stream):
    fields, code, param = COMPLETIONS[case]
    fields = {"model": MODEL, "prompt": "A", "max_tokens": 5, "stream": stream, **fields}
    check_refusal(lambda: openai_client.completions.create(**fields), code, param)


def test_a_prompt_that_is_too_long_tells_its_length(openai_client):
    with pytest.raises(BAD, match="maximum context length is 4096 tokens") as caught:
        openai_client.completions.create(model=MODEL, prompt="duck " * 9000)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "prompt"
    assert caught.value.body["n_ctx"] == 4096 < caught.value.body["n_prompt_tokens"]


def test_unknown_models_are_not_found(openai_client):
    for call in (lambda: openai_client.models.retrieve("nobody"),
                 lambda: openai_client.completions.create(model="nobody", prompt="a"),
                 lambda: openai_client.chat.completions.create(model="nobody", messages=DUCK),
                 lambda: openai_client.chat.completions.create(model="nobody", messages=DUCK,
                                                               stream=True)):
        with pytest.raises(openai.NotFoundError, match="The model `nobody` does not exist") as e:
            call()
        assert (e.value.type, e.value.code) == (TYPE, "model_not_found")


def test_unknown_paths_and_methods(openai_client):
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.files.list()
    assert (caught.value.code, caught.value.type) == ("not_found", TYPE)
    with pytest.raises(openai.APIStatusError) as caught:
        openai_client.delete("/chat/completions", cast_to=object)
    assert (caught.value.status_code, caught.value.code) == (405, "method_not_allowed")


@pytest.mark.parametrize("call", [
    lambda client: client.embeddings.create(model=MODEL, input="a"),
    lambda client: client.audio.speech.create(model=MODEL, input="a", voice="alloy"),
    lambda client: client.images.generate(model=MODEL, prompt="a"),
], ids=["embeddings", "speech", "images"])
def test_what_is_not_served_is_not_supported(openai_client, call):
    with pytest.raises(openai.InternalServerError) as caught:
        call(openai_client)
    assert (caught.value.status_code, caught.value.code) == (501, "not_supported")


def test_requests_of_a_wrong_form(openai_client):
    def status_of(**fields):
        with pytest.raises(openai.APIStatusError) as caught:
            openai_client.chat.completions.create(**{"model": MODEL, "messages": DUCK, **fields})
        return caught.value.status_code, caught.value.code

    assert status_of(extra_headers={"Content-Type": "text/plain"}) == (415, None)
    assert status_of(extra_headers={"Content-Encoding": "gzip"}) == (415, None)
    assert status_of(extra_headers={"X-Long": "y" * 7000, "X-Longer": "y" * 7000,
                                    "X-Longest": "y" * 7000}) == (431, None)
    long_message = [{"role": "user", "content": "duck " * 300000}]
    assert status_of(messages=long_message) == (413, "request_too_large")
