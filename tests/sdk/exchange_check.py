"""What holds for every answer of the server, whoever asked: headers, /openapi.json, the types of
the SDKs, and the order of events."""

import json
from collections import Counter

import sdk_types


def events_of(body):
    """Yields (event name or None, data) of server-sent events; a cut last event is left out."""
    blocks = body.decode().split("\n\n")
    for block in blocks[:-1]:
        if not block.strip("\n"):
            continue  # a sign of life
        name, data = None, []
        for line in block.strip("\n").split("\n"):
            key, _, value = line.partition(": ")
            assert key in ("event", "data"), f"a line that clients trip over: {line!r}"
            if key == "event":
                name = value
            else:
                data.append(value)
        assert len(data) == 1, f"an event of one line: {block!r}"
        yield name, data[0]


def check_exchange(exchange, description, may_be_cut=False):
    is_anthropic = exchange.path.startswith("/v1/messages")
    request_id = exchange.headers.get("x-request-id", "")
    assert request_id, "X-Request-Id"
    if is_anthropic:
        assert exchange.headers.get("request-id") == request_id, "request-id"
    if exchange.status >= 400:
        _check_error(exchange, description, exchange.body, is_anthropic)
        return
    assert exchange.status == 200
    if exchange.request:
        description.check_request(exchange.method, exchange.path, json.loads(exchange.request))
    if exchange.is_stream:
        check = {"/v1/messages": _check_anthropic_stream,
                 "/v1/responses": _check_responses_stream}.get(exchange.path, _check_openai_stream)
        check(exchange, description, list(events_of(exchange.body)), may_be_cut)
        return
    assert exchange.is_whole
    assert exchange.headers["content-type"] == "application/json"
    description.check_answer(exchange.method, exchange.path, 200, "application/json",
                             json.loads(exchange.body))
    sdk_types.check_answer(exchange.method, exchange.path, exchange.body)


def _check_error(exchange, description, text, is_anthropic):
    error = json.loads(text)
    if not exchange.is_stream:
        assert exchange.headers["content-type"] == "application/json"
    description.check_answer(exchange.method, exchange.path, 400, "application/json", error)
    sdk_types.check_error(exchange.path, exchange.status, text)
    assert error["error"]["message"]
    if is_anthropic:
        assert error["request_id"] == exchange.headers["request-id"]


def _check_event(exchange, description, data):
    event = json.loads(data)
    description.check_answer(exchange.method, exchange.path, 200, "text/event-stream", event)
    sdk_types.check_event(exchange.method, exchange.path, data)
    return event


def _check_openai_stream(exchange, description, events, may_be_cut):
    assert all(name is None for name, _ in events)
    data = [data for _, data in events]
    if data and data[-1] == "[DONE]":
        data.pop()
    else:
        assert may_be_cut, "the stream ends without [DONE]"
        may_be_cut = True
    failed = bool(data) and "error" in json.loads(data[-1])
    if failed:
        _check_error(exchange, description, data.pop(), False)
    chunks = [_check_event(exchange, description, text) for text in data]
    request = json.loads(exchange.request)
    assert len({chunk["id"] for chunk in chunks}) <= 1
    asked = (request.get("stream_options") or {}).get("include_usage", False)
    for chunk in chunks:
        assert chunk["choices"] or (asked and chunk is chunks[-1]), "a chunk without choices"
        assert ("usage" in chunk) == asked, "usage where it was not asked for, or the reverse"
    if failed or may_be_cut:
        return
    ends = Counter(choice["index"] for chunk in chunks for choice in chunk["choices"]
                   if choice["finish_reason"] is not None)
    seen = {choice["index"] for chunk in chunks for choice in chunk["choices"]}
    assert ends == Counter(seen), "each choice has exactly one finish reason"
    assert not asked or chunks[-1]["usage"]["completion_tokens"] > 0


_DELTAS = {"response.output_text": "text", "response.reasoning_text": "text",
           "response.function_call_arguments": "arguments",
           "response.custom_tool_call_input": "input"}


def _check_responses_stream(exchange, description, events, may_be_cut):
    told = []
    for name, data in events:
        event = _check_event(exchange, description, data)
        assert event["type"] == name
        told.append(event)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    items, joined = [], None  # the items that are done; the text of the one that is not
    for event in told[2:]:
        kind, _, step = event["type"].rpartition(".")
        if kind == "response":
            break
        assert event["output_index"] == len(items), "items come one after the other"
        if event["type"] == "response.output_item.added":
            assert joined is None
            joined, open_id = "", event["item"]["id"]
        elif event["type"] == "response.output_item.done":
            assert event["item"]["id"] == open_id
            items.append(event["item"])
            joined = None
        else:
            assert event["item_id"] == open_id and joined is not None
            if kind in _DELTAS and step == "delta":
                joined += event["delta"]
            elif kind in _DELTAS:
                assert event[_DELTAS[kind]] == joined
    if may_be_cut and event["type"].rpartition(".")[0] != "response":
        return
    assert event is told[-1], "one event ends the stream"
    response = event["response"]
    assert response["id"] == told[0]["response"]["id"] and response["output"] == items
    assert joined is None and event["type"] in {
        "completed": ["response.completed"], "failed": ["response.failed"],
        # There is no event of cancelled responses.
        "incomplete": ["response.incomplete"], "cancelled": ["response.incomplete"],
    }[response["status"]]


def _check_anthropic_stream(exchange, description, events, may_be_cut):
    failed = bool(events) and events[-1][0] == "error"
    if failed:
        _check_error(exchange, description, events.pop()[1], True)
    kinds = []
    for name, data in events:
        if name == "ping":
            continue
        event = _check_event(exchange, description, data)
        assert event["type"] == name
        kinds.append((name, event.get("index")))
    assert kinds[:1] == [("message_start", None)]
    is_open, n_blocks = None, 0
    for name, index in kinds:
        if name == "content_block_start":
            assert is_open is None and index == n_blocks
            is_open, n_blocks = index, n_blocks + 1
        elif name == "content_block_delta":
            assert is_open == index
        elif name == "content_block_stop":
            assert is_open == index
            is_open = None
    if failed or (may_be_cut and kinds[-1][0] != "message_stop"):
        return
    assert is_open is None
    names = [name for name, _ in kinds]
    assert names[-2:] == ["message_delta", "message_stop"] and names.count("message_delta") == 1
