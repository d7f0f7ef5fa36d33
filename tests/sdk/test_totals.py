"""How much all tests together have covered. Part of the whole suite only."""

from collections import Counter, defaultdict

from exchange_check import events_of


def test_the_suite_made_enough_calls(recorder):
    calls = Counter(exchange.client for exchange in recorder.exchanges)
    print(f"calls: {dict(calls)}")
    assert calls["openai"] >= 300 and calls["anthropic"] >= 50 and calls["openai-js"] >= 45
    streamed = Counter(exchange.client for exchange in recorder.exchanges if exchange.is_stream)
    assert streamed["openai"] >= 40 and streamed["anthropic"] >= 20 and streamed["openai-js"] >= 5


GENERATION = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}


def test_all_statuses_were_seen_at_each_path(recorder):
    seen = defaultdict(set)
    for exchange in recorder.exchanges:
        seen[exchange.path].add(exchange.status)
    for path in GENERATION:
        missing = {200, 400, 404, 405, 408, 413, 415, 429, 431, 500, 503} - seen[path]
        assert not missing, (path, missing)
    assert 501 in seen["/v1/embeddings"]


def test_streams_that_failed_were_seen_at_each_path(recorder):
    failed = {exchange.path for exchange in recorder.exchanges if exchange.is_stream
              and any('"error"' in data[:30] or name == "response.failed"
                      for name, data in events_of(exchange.body))}
    assert failed == GENERATION
