"""Requests that no SDK sends: bytes on a socket. Errors have the shape of the path's API."""

import json

import pytest

PATHS = ["/v1/chat/completions", "/v1/messages"]


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


@pytest.mark.parametrize("path", PATHS)
def test_requests_that_come_too_slowly(served, recorder, path):
    whole_line = head_of(path)[:-2]  # the header never ends
    slow_header = check(recorder.by_socket(served.address, whole_line, path), 408)
    assert "header" in slow_header["message"]
    slow_body = check(recorder.by_socket(
        served.address, head_of(path, "Content-Length: 100") + b"{", path), 408)
    assert "body" in slow_body["message"]


def test_no_request_at_all(served, recorder):
    error = recorder.by_socket(served.address, b"GARBAGE\r\n\r\n", "/")
    assert error.status == 400


@pytest.mark.parametrize("path", PATHS)
def test_the_client_names_its_request_in_errors_too(served, recorder, path):
    exchange = recorder.by_socket(
        served.address, head_of(path, "X-Request-Id: mine.4", "Content-Length: 99999999"), path)
    check(exchange, 413)
    assert exchange.headers["x-request-id"] == "mine.4"
