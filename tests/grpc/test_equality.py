"""Equal requests get equal answers over gRPC and HTTP: texts, token ids, log-probabilities, digests
of logits, finish reasons; wrong ones get equal errors."""

import concurrent.futures
import json
import random
import struct
import urllib.error
import urllib.request

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

WORDS = ("the a duck goose river stone bright slow seven king paper lamp under over sings walks "
         "asks why answer 42 3.5 naïve straße 日本 🙂 \n ; ( \" tomorrow").split(" ")


def post(served, path, body):
    request = urllib.request.Request(served.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def drawn_request(draw, n_vocab):
    """Returns a request's fields for gRPC and the body and path for HTTP."""
    body = {"max_tokens": draw.randint(1, 24), "return_token_ids": True, "baton_digest": True,
            "seed": draw.randint(-2**63, 2**63 - 1)}
    for name, value in (("temperature", draw.choice([0, 0.7, 1.0, 1.9])),
                        ("top_p", draw.uniform(0.3, 1)), ("top_k", draw.randint(0, 50)),
                        ("min_p", draw.uniform(0, 0.2)), ("n", draw.randint(1, 3)),
                        ("presence_penalty", draw.uniform(-2, 2)),
                        ("frequency_penalty", draw.uniform(-2, 2)),
                        ("repetition_penalty", draw.uniform(0.8, 1.4)),
                        ("min_tokens", 1), ("ignore_eos", True),
                        ("skip_special_tokens", False), ("include_stop_str_in_output", True),
                        ("stop", draw.sample(["e", "th", " a", "ing", "."], draw.randint(1, 3))),
                        ("stop_token_ids", [draw.randrange(n_vocab) for _ in range(3)]),
                        ("cache_salt", draw.choice(["a", "b"]))):
        if draw.random() < 0.4:
            body[name] = value
    fields = dict(body)
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 40)))
    logprobs = draw.choice([None, 0, 3])
    kind = draw.choice(["text", "ids", "chat"])
    if kind == "chat":
        messages = [{"role": "user", "content": text}]
        if draw.random() < 0.5:
            messages = [{"role": "system", "content": "Be brief."}, *messages]
        body["messages"] = messages
        fields["chat"] = {"messages": messages}
        if logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": logprobs}
    else:
        body["prompt"] = text
        if kind == "ids":
            body["prompt"] = [draw.randrange(n_vocab) for _ in range(draw.randint(1, 60))]
            fields["prompt_token_ids"] = {"ids": body["prompt"]}
        else:
            fields["prompt"] = text
        if logprobs is not None:
            body["logprobs"] = logprobs
    if logprobs is not None:
        fields["logprobs"] = logprobs
    return fields, body, "/v1/chat/completions" if kind == "chat" else "/v1/completions"


def as_float(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def http_logprobs(choice, is_chat):
    if choice["logprobs"] is None:
        return []
    if is_chat:
        return [(as_float(entry["logprob"]), [as_float(top["logprob"]) for top in entry["top_logprobs"]])
                for entry in choice["logprobs"]["content"]]
    return [(as_float(logprob), None) for logprob in choice["logprobs"]["token_logprobs"]]


def check_equal(answer, body, is_chat, expected):
    assert len(answer.choices) == len(expected["choices"]) == body.get("n", 1)
    for choice in expected["choices"]:
        told = answer.choices[choice["index"]]
        text = choice["message"]["content"] or "" if is_chat else choice["text"]
        assert (told.text, told.ids, told.digests, told.finish_reason, told.stop_reason) == (
            text, choice["token_ids"], choice["baton_digests"], choice["finish_reason"],
            choice["stop_reason"])
        logprobs = [(token.logprob, [top.logprob for top in token.top] if is_chat else None)
                    for token in told.logprobs]
        assert logprobs == http_logprobs(choice, is_chat)
    usage = expected["usage"]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
        usage["prompt_tokens"], usage["completion_tokens"])


def test_200_drawn_requests(served, client):
    n_vocab = client.ListModels(client.message("ListModelsRequest"), timeout=10).models[0].n_vocab
    draw = random.Random(20)
    n_tokens = 0

    def ask(request):
        fields, body, path = request
        answer = client.generate(**fields)
        expected = post(served, path, body)
        assert "error" not in expected, (expected, body)
        check_equal(answer, body, "messages" in body, expected)
        return answer.usage.completion_tokens

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        n_tokens = sum(pool.map(ask, [drawn_request(draw, n_vocab) for _ in range(200)]))
    assert n_tokens > 1000


def test_a_form_and_further_fields_hold(served, client):
    schema = {"type": "object", "required": ["a"], "additionalProperties": False,
              "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}}}
    for form in ({"json": json.dumps(schema)}, {"regex": "[0-9]{3}-[a-z]{2}"},
                 {"grammar": 'start: "a" /b+/ "c"'}, {"json_object": True}):
        fields = {"prompt": "{", "max_tokens": 24, "seed": 3, "structured_outputs": form}
        choice, = post(served, "/v1/completions", fields)["choices"]
        assert client.generate(**fields).choices[0].text == choice["text"] != ""
    answer = client.generate(prompt="x", max_tokens=8, seed=3, structured_outputs={
        "choice": {"texts": ["yes", "no"]}})
    assert answer.choices[0].text in ("yes", "no")
    answer = client.generate(chat={"messages": [{"role": "user", "content": "Weather?"}]}, seed=1,
                             max_tokens=200, more_fields_json=json.dumps({
                                 "tool_choice": "required", "tools": [{
                                     "type": "function", "function": {
                                         "name": "look", "strict": True, "parameters": schema}}]}))
    assert answer.choices[0].finish_reason in ("tool_calls", "length")
    assert answer.choices[0].calls[0].name == "look"


def test_tokens_of_texts(served, client):
    text = "Seven ducks, naïve 🙂"
    tokens = client.Tokenize(client.message("TokenizeRequest", prompt=text), timeout=10)
    assert list(tokens.tokens) == post(served, "/tokenize", {"prompt": text})["tokens"]
    messages = [{"role": "user", "content": text}]
    tokens = client.Tokenize(client.message("TokenizeRequest", chat={"messages": messages}), timeout=10)
    assert list(tokens.tokens) == post(served, "/tokenize", {"messages": messages})["tokens"]
    told = client.Detokenize(client.message("DetokenizeRequest", tokens=tokens.tokens), timeout=10)
    assert told.text == post(served, "/detokenize", {"tokens": list(tokens.tokens)})["prompt"]
    assert text in told.text


@pytest.mark.parametrize("fields, path, body, code", [
    ({}, "/v1/completions", {}, "INVALID_ARGUMENT"),
    ({"prompt": "a", "temperature": 7}, "/v1/completions", {"prompt": "a", "temperature": 7},
     "INVALID_ARGUMENT"),
    ({"prompt": "a", "max_tokens": -1}, "/v1/completions", {"prompt": "a", "max_tokens": -1},
     "INVALID_ARGUMENT"),
    ({"prompt": "a", "n": 1000}, "/v1/completions", {"prompt": "a", "n": 1000}, "INVALID_ARGUMENT"),
    ({"prompt": "a", "stop": [""]}, "/v1/completions", {"prompt": "a", "stop": [""]},
     "INVALID_ARGUMENT"),
    ({"prompt_token_ids": {"ids": [99999999]}}, "/v1/completions", {"prompt": [99999999]},
     "INVALID_ARGUMENT"),
    ({"prompt_token_ids": {}}, "/v1/completions", {"prompt": []}, "INVALID_ARGUMENT"),
    ({"chat": {}}, "/v1/chat/completions", {"messages": []}, "INVALID_ARGUMENT"),
    ({"chat": {"messages": [{"role": "king", "content": "a"}]}}, "/v1/chat/completions",
     {"messages": [{"role": "king", "content": "a"}]}, "INVALID_ARGUMENT"),
    ({"prompt": "a", "structured_outputs": {"regex": "(("}}, "/v1/completions",
     {"prompt": "a", "structured_outputs": {"regex": "(("}}, "INVALID_ARGUMENT"),
    ({"prompt": "a", "more_fields_json": '{"priority": 3}'}, "/v1/completions",
     {"prompt": "a", "priority": 3}, "INVALID_ARGUMENT"),
    ({"prompt": "a", "model": "gone"}, "/v1/completions", {"prompt": "a", "model": "gone"},
     "NOT_FOUND"),
    ({"prompt_token_ids": {"ids": [5] * 5000}}, "/v1/completions", {"prompt": [5] * 5000},
     "INVALID_ARGUMENT"),
])
def test_errors_are_those_of_http(served, client, fields, path, body, code):
    expected = post(served, path, body)["error"]
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(**fields)
    assert (caught.value.code().name, caught.value.details()) == (code, expected["message"])
    details = {detail.type_url.rsplit(".", 1)[1]: detail.value
               for detail in rpc_status.from_call(caught.value).details}
    info = error_details_pb2.ErrorInfo.FromString(details["ErrorInfo"])
    assert info.domain == "baton"
    if expected["code"]:
        assert info.reason == expected["code"].upper()
    if expected["param"]:
        bad = error_details_pb2.BadRequest.FromString(details["BadRequest"])
        assert bad.field_violations[0].field == expected["param"]


def test_bytes_that_are_no_text(client):
    call = client.channel.unary_stream("/baton.v1.Completion/Generate")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(b"\x12\x02\xc3\x28", timeout=10))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as caught:
        list(call(b"\x12" + b"\xff" * (2 << 20), timeout=10))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as caught:
        client.channel.unary_unary("/baton.v1.Completion/Nothing")(b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
