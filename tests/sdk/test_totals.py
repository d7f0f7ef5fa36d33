"""How much all tests together have covered. Part of the whole suite only."""

from collections import Counter

from exchange_check import events_of


def test_the_suite_made_enough_calls(recorder):
    calls = Counter(exchange.client for exchange in recorder.exchanges)
    print(f"calls: {dict(calls)}")
    assert calls["openai"] >= 300 and calls["anthropic"] >= 50 and calls["openai-js"] >= 45
    streamed = Counter(exchange.client for exchange in recorder.exchanges if exchange.is_stream)
    assert streamed["openai"] >= 40 and streamed["anthropic"] >= 20 and streamed["openai-js"] >= 5


def test_all_statuses_were_seen_in_both_shapes(recorder):
    seen = {is_anthropic: {exchange.status for exchange in recorder.exchanges
                           if exchange.path.startswith("/v1/messages") == is_anthropic}
            for is_anthropic in (False, True)}
    print(f"statuses: {seen}")
    both = {200, 400, 404, 405, 408, 413, 415, 429, 431, 500, 503}
    assert both <= seen[True] and both | {501} <= seen[False]


def test_streams_that_failed_were_seen_in_both_shapes(recorder):
    failed = {exchange.path for exchange in recorder.exchanges if exchange.is_stream
              and any('"error"' in data[:30] or name == "response.failed"
                      for name, data in events_of(exchange.body))}
    assert {"/v1/chat/completions", "/v1/messages", "/v1/responses"} <= failed
