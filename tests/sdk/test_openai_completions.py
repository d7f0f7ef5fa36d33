"""Completions by OpenAI's SDK: what is streamed joins to what comes whole."""

import pytest
from conversations import ALIAS, MODEL

PROMPT = "The color of the sky is"

CASES = {
    "plain": {},
    "alias": {"model": ALIAS, "max_tokens": 3},
    "default length": {"max_tokens": None},
    "two prompts": {"prompt": ["What is 2 + 3?", "A cow"], "max_tokens": 6},
    "two prompts, two choices": {"prompt": ["One", "Two"], "n": 2, "temperature": 1.4, "seed": 8,
                                 "max_tokens": 6},
    "token ids": {"prompt": [300, 301, 302], "max_tokens": 4},
    "prompts of token ids": {"prompt": [[300, 301], [302]], "max_tokens": 4},
    "logprobs": {"logprobs": 3, "max_tokens": 8},
    "logprobs of the drawn": {"logprobs": 0, "max_tokens": 4, "temperature": 1, "seed": 6},
    "echo": {"echo": True, "max_tokens": 5},
    "stop": {"stop": [" a"], "max_tokens": 60},
    "seeded": {"temperature": 1.3, "seed": 9},
    "bias and penalties": {"logit_bias": {"400": -100}, "presence_penalty": 0.3,
                           "frequency_penalty": 0.3},
    "regex": {"extra_body": {"guided_regex": "[0-9]{4}"}},
    "token ids told": {"extra_body": {"return_token_ids": True}, "max_tokens": 4},
}


def fields_of(case):
    return {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 16,
            **CASES[case]}


@pytest.mark.parametrize("case", CASES)
def test_a_stream_joins_to_the_answer_that_comes_whole(openai_client, case):
    fields = fields_of(case)
    whole = openai_client.completions.create(**fields)
    texts, finishes, tokens, usage = {}, {}, {}, None
    for chunk in openai_client.completions.create(**fields, stream=True,
                                                  stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            i = choice.index
            texts[i] = texts.get(i, "") + choice.text
            finishes[i] = choice.finish_reason or finishes.get(i)
            if choice.logprobs:
                tokens[i] = tokens.get(i, []) + list(
                    zip(choice.logprobs.tokens, choice.logprobs.token_logprobs,
                        choice.logprobs.text_offset))
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert finishes == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage.completion_tokens == whole.usage.completion_tokens
    for choice in whole.choices:
        logprobs = choice.logprobs
        assert (logprobs is not None) == ("logprobs" in fields)
        if logprobs:
            assert tokens[choice.index] == list(
                zip(logprobs.tokens, logprobs.token_logprobs, logprobs.text_offset))


def test_the_best_of_some_is_told(openai_client):
    best = openai_client.completions.create(
        **{**fields_of("logprobs"), "temperature": 1.5, "seed": 4}, n=2, best_of=6)
    means = [sum(c.logprobs.token_logprobs) / len(c.logprobs.tokens) for c in best.choices]
    assert len(means) == 2 and means[0] >= means[1]


def test_an_echo_begins_with_the_prompt(openai_client):
    answer = openai_client.completions.create(**fields_of("echo"))
    assert answer.choices[0].text.startswith(PROMPT)


def test_raw_responses_carry_the_request_id(openai_client):
    raw = openai_client.completions.with_raw_response.create(
        **fields_of("logprobs"), extra_headers={"X-Request-Id": "mine.2"})
    assert raw.request_id == "mine.2" and raw.parse().id == "cmpl-mine.2"
