"""Keeps what SDKs send and get: transports of their HTTP clients that record each exchange."""

import dataclasses
import json
import socket
from http.client import HTTPResponse

import httpx2


@dataclasses.dataclass
class Exchange:
    client: str  # "openai", "anthropic", "openai-js" or "socket"
    method: str
    path: str  # without the query
    request: bytes  # the body
    status: int = 0
    headers: dict = dataclasses.field(default_factory=dict)  # names in lower case
    body: bytes = b""
    is_whole: bool = False  # False: the client went away before the end of the answer

    @property
    def is_stream(self):
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def __str__(self):
        return (f"{self.client}: {self.method} {self.path} {self.request[:1000]!r}\n"
                f"-> {self.status} {self.headers}\n{self.body[:4000]!r}")


class Recorder:
    def __init__(self):
        self.exchanges = []

    def http_client(self, name):
        return httpx2.Client(transport=_Transport(self.exchanges, name), timeout=60)

    def async_http_client(self, name):
        return httpx2.AsyncClient(transport=_AsyncTransport(self.exchanges, name), timeout=60)

    def read(self, path):
        """Takes exchanges from a file with a JSON object per line."""
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                fields["request"] = fields["request"].encode()
                fields["body"] = fields["body"].encode()
                self.exchanges.append(Exchange(**fields))

    def by_socket(self, address, request, path, method="POST"):
        """Sends these bytes and returns the one answer; nothing is sent after them."""
        with socket.create_connection(address, timeout=30) as connection:
            try:
                connection.sendall(request)
            except ConnectionError:
                pass  # answered before the end of the request
            answer = HTTPResponse(connection, method=method)
            answer.begin()
            exchange = Exchange(client="socket", method=method, path=path, request=b"",
                                status=answer.status, body=answer.read(), is_whole=True,
                                headers={k.lower(): v for k, v in answer.getheaders()})
        self.exchanges.append(exchange)
        return exchange


def _begin(exchanges, client, request, response):
    exchange = Exchange(client=client, method=request.method, path=request.url.path,
                        request=request.content, status=response.status_code,
                        headers={k.lower(): v for k, v in response.headers.items()})
    exchanges.append(exchange)
    return exchange


class _Transport(httpx2.HTTPTransport):
    def __init__(self, exchanges, client):
        super().__init__()
        self._exchanges, self._client = exchanges, client

    def handle_request(self, request):
        request.read()
        response = super().handle_request(request)
        response.stream = _Stream(response.stream,
                                  _begin(self._exchanges, self._client, request, response))
        return response


class _Stream(httpx2.SyncByteStream):
    def __init__(self, stream, exchange):
        self._stream, self._exchange = stream, exchange

    def __iter__(self):
        for part in self._stream:
            self._exchange.body += part
            yield part
        self._exchange.is_whole = True

    def close(self):
        self._stream.close()


class _AsyncTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, exchanges, client):
        super().__init__()
        self._exchanges, self._client = exchanges, client

    async def handle_async_request(self, request):
        await request.aread()
        response = await super().handle_async_request(request)
        response.stream = _AsyncStream(response.stream,
                                       _begin(self._exchanges, self._client, request, response))
        return response


class _AsyncStream(httpx2.AsyncByteStream):
    def __init__(self, stream, exchange):
        self._stream, self._exchange = stream, exchange

    async def __aiter__(self):
        async for part in self._stream:
            self._exchange.body += part
            yield part
        self._exchange.is_whole = True

    async def aclose(self):
        await self._stream.aclose()
