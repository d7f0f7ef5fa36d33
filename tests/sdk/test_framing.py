"""Requests that no SDK sends: bytes on a socket. Errors have the shape of the path's API."""

import concurrent.futures
import json

import pytest

PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]


def head_of(path, *lines, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def check(exchange, status):
    assert exchange.status == status
    assert exchange.headers["connection"] == "close"
    error = json.loads(exchange.body)
    assert (error.get("type") == "error") == (exchange.path == "/v1/messages")
    return error["error"]


@pytest.mark.parametrize("path", PATHS)
def test_framing(served, recorder, path):
    def answer(request):
        return recorder.by_socket(served.address, request, path)

    check(answer(head_of(path, "Content-Length: 5", "Content-Length: 6")), 400)
    check(answer(head_of(path, "Transfer-Encoding: chunked") + b"zz\r\n"), 400)
    check(answer(head_of(path, "Content-Length: 99999999")), 413)
    check(answer(head_of(path, "Content-Type: text/html", "Content-Length: 2") + b"{}"), 415)
    check(answer(head_of(path, "X: " + "y" * 20000)), 431)
    check(answer(head_of(path, *(f"X-{i}: y" for i in range(100)))), 431)


def test_requests_that_come_too_slowly(served, recorder):
    def check_slow(path, request, part):
        error = check(recorder.by_socket(served.address, request, path), 408)
        assert part in error["message"]

    with concurrent.futures.ThreadPoolExecutor(2 * len(PATHS)) as pool:  # each waits for seconds
        asked = []
        for path in PATHS:
            endless_header = head_of(path)[:-2]
            endless_body = head_of(path, "Content-Length: 100") + b"{"
            asked += [pool.submit(check_slow, path, endless_header, "header"),
                      pool.submit(check_slow, path, endless_body, "body")]
    for one in asked:
        one.result()


@pytest.mark.parametrize("path", PATHS)
def test_methods_that_a_path_does_not_have(served, recorder, path):
    exchange = recorder.by_socket(served.address, head_of(path, method="PATCH"), path, "PATCH")
    assert exchange.status == 405
    error = json.loads(exchange.body)
    assert (error.get("type") == "error") == (path == "/v1/messages")


def test_no_request_at_all(served, recorder):
    error = recorder.by_socket(served.address, b"GARBAGE\r\n\r\n", "/")
    assert error.status == 400


@pytest.mark.parametrize("path", PATHS)
def test_the_client_names_its_request_in_errors_too(served, recorder, path):
    exchange = recorder.by_socket(
        served.address, head_of(path, "X-Request-Id: mine.4", "Content-Length: 99999999"), path)
    check(exchange, 413)
    assert exchange.headers["x-request-id"] == "mine.4"
