"""A server with API keys, asked by the SDKs: keys come from `baton key`."""

import json
import os
import signal
import subprocess

import anthropic
import openai
import pytest
from served_baton import ServedBaton, wait_until

MESSAGES = [{"role": "user", "content": "What is 17 + 25?"}]


class Keys:
    """A file of keys, and the keys themselves."""

    def __init__(self, binary, folder):
        self._binary = binary
        self.path = str(folder / "keys")
        self.of = {}
        os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))

    def add(self, name, *options):
        made = subprocess.run([self._binary, "key", name, *options], check=True,
                              capture_output=True, text=True)
        self.of[name] = made.stderr.split("\n")[0]
        assert self.of[name].startswith("bk_") and self.of[name] not in made.stdout
        with open(self.path, "a", encoding="ascii") as file:
            file.write(made.stdout)
        return made.stdout


@pytest.fixture(scope="module")
def keys(request, tmp_path_factory):
    made = Keys(request.config.getoption("--baton"), tmp_path_factory.mktemp("keys"))
    made.add("app", "--tenant", "team")
    made.add("other")
    made.add("slow", "--rate", "0.01")
    made.add("prom", "--scopes", "metrics,admin")
    return made


@pytest.fixture(scope="module")
def guarded(request, keys):
    server = ServedBaton(request.config.getoption("--baton"), "--demo", "--prefill", "1",
                         "--api-key-file", keys.path)
    yield server
    status = server.terminate()
    assert status == 0, server.log()
    for key in keys.of.values():
        assert key not in server.log()


def openai_client(server, key):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)


def anthropic_client(server, **key):
    return anthropic.Anthropic(base_url=server.url, max_retries=0, **key)


def ask(client):
    return client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=8)


def test_openai(guarded, keys):
    client = openai_client(guarded, keys.of["app"])
    assert ask(client).choices[0].message.content
    assert [model.id for model in client.models.list()] == ["demo"]
    stream = client.chat.completions.create(model="demo", messages=MESSAGES, stream=True)
    assert [chunk for chunk in stream][-1].choices[0].finish_reason


@pytest.mark.parametrize("key", ["none", "bk_", "bk_" + 43 * "A"])
def test_openai_with_a_wrong_key(guarded, key):
    with pytest.raises(openai.AuthenticationError) as refused:
        ask(openai_client(guarded, key))
    assert refused.value.code == "invalid_api_key"
    assert refused.value.type == "invalid_request_error"
    assert key not in str(refused.value)
    assert refused.value.response.headers["www-authenticate"] == "Bearer"


def test_openai_with_a_key_of_another_scope(guarded, keys):
    with pytest.raises(openai.PermissionDeniedError) as refused:
        ask(openai_client(guarded, keys.of["prom"]))
    assert refused.value.code == "insufficient_scope"


def test_a_limit_tells_when_to_come_again(guarded, keys):
    client = openai_client(guarded, keys.of["slow"])
    ask(client)
    with pytest.raises(openai.RateLimitError) as refused:
        ask(client)
    assert refused.value.code == "rate_limit_exceeded"
    assert 90 <= int(refused.value.response.headers["retry-after"]) <= 100


def test_anthropic(guarded, keys):
    for key in ({"api_key": keys.of["app"]}, {"auth_token": keys.of["app"]}):
        message = anthropic_client(guarded, **key).messages.create(
            model="demo", max_tokens=8, messages=MESSAGES)
        assert message.content
    for client, error in ((anthropic_client(guarded, api_key="none"), anthropic.AuthenticationError),
                          (anthropic_client(guarded, api_key=keys.of["prom"]),
                           anthropic.PermissionDeniedError)):
        with pytest.raises(error) as refused:
            client.messages.create(model="demo", max_tokens=8, messages=MESSAGES)
        assert refused.value.body["type"] == "error"


def test_stored_answers_are_a_tenants(guarded, keys):
    mine, other = (openai_client(guarded, keys.of[name]) for name in ("app", "other"))
    stored = mine.responses.create(model="demo", input="hi", max_output_tokens=16)
    assert mine.responses.retrieve(stored.id).id == stored.id
    for refused in (lambda: other.responses.retrieve(stored.id),
                    lambda: other.responses.create(model="demo", input="go on",
                                                   previous_response_id=stored.id)):
        with pytest.raises(openai.NotFoundError):
            refused()
    chat = mine.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=8, store=True)
    assert chat.id in [each.id for each in mine.chat.completions.list()]
    assert list(other.chat.completions.list()) == []


def test_a_key_that_is_added(guarded, keys):
    keys.add("late")
    os.kill(guarded.pid, signal.SIGHUP)
    client = openai_client(guarded, keys.of["late"])

    def is_known():
        try:
            return bool(client.models.list().data)
        except openai.AuthenticationError:
            return False
    wait_until(is_known, 10)
    assert json.loads(ask(client).model_dump_json())["choices"]
