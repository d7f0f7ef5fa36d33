"""Structured output of a model of random weights, under random schemas, by a validator that knows
nothing of grammars. `scripts/sdk_test.sh test_schemas.py --schemas 500 -s` is a longer run."""

import concurrent.futures
import json
import urllib.request

import pytest
from jsonschema import Draft202012Validator
from random_weights import write_random_model
from schema_maker import SchemaMaker
from served_baton import ServedBaton

MAX_TOKENS = 1500


@pytest.fixture(scope="module")
def random_model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("random") / "model"
    write_random_model(folder, seed=1)
    server = ServedBaton(request.config.getoption("--baton"), str(folder), "--prefill", "1",
                         "--served-model-name", "random", "--log.level=warn")
    yield server
    status = server.terminate()
    assert status == 0, server.log()


def answer_of(server, schema, seed):
    """The text of an answer that the schema binds; None: max_tokens cut it."""
    body = {"model": "random", "messages": [{"role": "user", "content": "An object, please."}],
            "max_tokens": MAX_TOKENS, "temperature": 1, "seed": seed,
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "drawn", "schema": schema, "strict": True}}}
    request = urllib.request.Request(server.url + "/v1/chat/completions",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        choice, = json.load(answer)["choices"]
    assert choice["finish_reason"] in ("stop", "length")
    return choice["message"]["content"] if choice["finish_reason"] == "stop" else None


def test_random_schemas(random_model, request):
    n_schemas = request.config.getoption("--schemas")
    schemas = [SchemaMaker(seed).root() for seed in range(n_schemas)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda seed: answer_of(random_model, schemas[seed], seed),
                                range(n_schemas)))
    n_cut = answers.count(None)
    checker = Draft202012Validator.FORMAT_CHECKER
    for schema, answer in zip(schemas, answers):
        if answer is not None:
            Draft202012Validator(schema, format_checker=checker).validate(json.loads(answer))
    print(f"\n{n_schemas} schemas: {n_schemas - n_cut} complete and valid, {n_cut} cut at "
          f"{MAX_TOKENS} tokens")
    assert n_cut <= n_schemas / 10
    # The model's weights are random, so its texts must be of many kinds.
    assert len(set(answers)) > n_schemas / 2
