"""A client of baton.v1.Completion that has no .proto file: server reflection tells it the messages."""

import socket

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

SERVICE = "baton.v1.Completion"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class CompletionClient:
    """Its members are the methods of the service; `message` makes their requests."""

    def __init__(self, port, **options):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", list(options.items()))
        self.reflection = ProtoReflectionDescriptorDatabase(self.channel)
        self._pool = DescriptorPool(self.reflection)
        for method in self._pool.FindServiceByName(SERVICE).methods:
            make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
            setattr(self, method.name, make(
                f"/{SERVICE}/{method.name}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=GetMessageClass(method.output_type).FromString))

    def message(self, name, **fields):
        return GetMessageClass(self._pool.FindMessageTypeByName(f"baton.v1.{name}"))(**fields)

    def request(self, **fields):
        return self.message("GenerateRequest", **fields)

    def generate(self, **fields):
        return Answer(self.Generate(self.request(**fields), timeout=60))

    def close(self):
        self.channel.close()


class Answer:
    """All that a stream told, by choice."""

    def __init__(self, stream):
        self.choices, self.usage, self.first = {}, None, None
        for response in stream:
            self.first = self.first or response
            for delta in response.choices:
                choice = self.choices.setdefault(delta.index, Choice())
                choice.add(delta)
            if response.HasField("usage"):
                self.usage = response.usage


class Choice:
    def __init__(self):
        self.text, self.ids, self.logprobs, self.digests, self.calls = "", [], [], [], []
        self.finish_reason = self.stop_reason = None

    def add(self, delta):
        assert self.finish_reason is None, "nothing follows the finish reason"
        self.text += delta.text
        self.ids += delta.token_ids
        self.logprobs += delta.logprobs
        self.calls += delta.tool_calls
        self.digests += (f"{digest:016x}" for digest in delta.baton_digests)
        if delta.finish_reason:
            self.finish_reason = delta.finish_reason
            if delta.HasField("stop_text"):
                self.stop_reason = delta.stop_text
            elif delta.HasField("stop_token_id"):
                self.stop_reason = delta.stop_token_id
