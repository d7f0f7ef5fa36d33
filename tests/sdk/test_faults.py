"""What a full, a broken and an empty cluster answer. The server has settings by which one lost
worker ends a request, and processes are stopped and killed here."""

import os
import signal
import threading

import anthropic
import openai
import pytest
from conversations import DUCK, MODEL
from served_baton import wait_until

LONG = {"model": MODEL, "messages": DUCK, "max_tokens": 3700}
# Requests that ask for as much, by each API of OpenAI.
LONG_CALLS = {
    "chat": lambda client, **more: client.chat.completions.create(**LONG, **more),
    "completions": lambda client, **more: client.completions.create(
        model=MODEL, prompt="A duck", max_tokens=3700, **more),
    "responses": lambda client, **more: client.responses.create(
        model=MODEL, input=DUCK, max_output_tokens=3700, **more),
}


def long_stream(client, n_choices, api="chat"):
    """A stream of few events that keeps the workers busy for seconds, with its first token read."""
    stream = LONG_CALLS[api](client, n=n_choices, stream=True, temperature=0,
                             extra_body={"ignore_eos": True, "stream_interval": 1024})
    next(iter(stream))
    return stream


def kill_decode_worker(served):
    worker, = served.children("decode")
    os.kill(worker, signal.SIGKILL)


@pytest.fixture(autouse=True)
def healthy(served, checked):
    yield
    wait_until(served.is_healthy, 30)


def test_a_full_server_sheds_load(openai_client, anthropic_client, cuts):
    cuts.allowed = True
    with long_stream(openai_client, 10):
        with pytest.raises(openai.RateLimitError) as caught:
            openai_client.chat.completions.create(**LONG)
        error = caught.value
        assert (error.status_code, error.type, error.code, error.param) == (
            429, "rate_limit_error", "server_overloaded", None)
        assert int(error.response.headers["retry-after"]) >= 1
        for call in LONG_CALLS.values():
            for more in ({}, {"stream": True}):
                with pytest.raises(openai.RateLimitError):
                    call(openai_client, **more)
        for more in ({}, {"stream": True}):
            with pytest.raises(anthropic.RateLimitError) as caught:
                anthropic_client.messages.create(**LONG, **more)
            assert caught.value.type == "rate_limit_error"
    # The SDK waits as it is told and tries again.
    patient = openai_client.with_options(max_retries=2)
    assert patient.chat.completions.create(**{**LONG, "max_tokens": 3}).choices


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_lost_worker_breaks_a_stream_with_an_error_event(served, openai_client, api):
    with pytest.raises(openai.APIError) as caught:
        stream = long_stream(openai_client, 10, api)
        kill_decode_worker(served)
        for _ in stream:
            pass
    error = caught.value
    assert (error.type, error.code, error.param) == ("server_error", "workers_lost", None)


def test_a_lost_worker_fails_a_response_and_its_stream(served, openai_client, cuts):
    cuts.allowed = True
    tool = {"type": "function", "name": "f", "strict": True, "parameters": {
        "type": "object", "required": ["numbers"], "properties": {
            "numbers": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1900}}}}
    with long_stream(openai_client, 9):
        *_, last = (event for event in openai_client.responses.create(
            model=MODEL, input=DUCK, max_output_tokens=3700, stream=True, tools=[tool],
            tool_choice="required") if event.type != "response.in_progress"
            or kill_decode_worker(served) is None)
    assert last.type == "response.failed" and last.response.status == "failed"
    assert last.response.error.code == "server_error" and last.response.usage is None
    wait_until(served.is_healthy, 30)
    assert openai_client.responses.retrieve(last.response.id) == last.response


def test_a_lost_worker_breaks_a_stream_of_messages_with_an_error_event(
        served, openai_client, anthropic_client, cuts):
    cuts.allowed = True
    numbers = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1900}
    tool = {"name": "f", "input_schema": {"type": "object", "properties": {"numbers": numbers},
                                          "required": ["numbers"]}}
    with long_stream(openai_client, 9), pytest.raises(anthropic.APIStatusError) as caught:
        for event in anthropic_client.messages.create(
                **LONG, stream=True, tools=[tool], tool_choice={"type": "tool", "name": "f"}):
            if event.type == "message_start":
                kill_decode_worker(served)
    assert caught.value.body["error"]["type"] == "api_error"


def test_a_lost_worker_fails_answers(served, openai_client, anthropic_client):
    """The decode worker stands still when the requests come, so that it has them when it dies."""
    worker, = served.children("decode")
    os.kill(worker, signal.SIGSTOP)
    errors = {}

    def ask(api):
        try:
            if api == "messages":
                anthropic_client.messages.create(**LONG)
            else:
                LONG_CALLS[api](openai_client)
        except Exception as error:
            errors[api] = error

    asking = [threading.Thread(target=ask, args=[api]) for api in (*LONG_CALLS, "messages")]
    for thread in asking:
        thread.start()
    wait_until(lambda: errors or served.get("/load")["server_load"] == len(asking), 10)
    os.kill(worker, signal.SIGKILL)
    for thread in asking:
        thread.join()
    assert [error.status_code for error in errors.values()] == [500] * 4
    error = errors.pop("messages")
    assert isinstance(error, anthropic.InternalServerError) and error.type == "api_error"
    for error in errors.values():
        assert isinstance(error, openai.InternalServerError)
        assert (error.type, error.code) == ("server_error", "workers_lost")


def test_without_workers_nothing_is_served(served, openai_client, anthropic_client):
    workers = served.children("decode") + served.children("prefill")
    assert len(workers) == 2
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # silent, so the router takes it for lost
    try:
        wait_until(lambda: served.get("/v1/cluster")["workers"] == {
            "prefill": 0, "decode": 0, "standing": 0, "expected": 2}, 10)
        for more in ({}, {"stream": True}):
            for call in LONG_CALLS.values():
                with pytest.raises(openai.InternalServerError) as caught:
                    call(openai_client, **more)
                error = caught.value
                assert (error.status_code, error.type) == (503, "server_error")
                assert error.code in ("no_workers", "model_loading")
            with pytest.raises(anthropic.APIStatusError) as caught:
                anthropic_client.messages.create(**LONG, **more)
            assert caught.value.status_code == 503 and caught.value.type == "overloaded_error"
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
