"""The life of calls and of the server: cancellation, deadlines, slow readers, health, reflection,
loads, shutdown."""

import concurrent.futures
import os
import random
import signal
import subprocess
import threading
import time

import grpc
import pytest
from completion_client import CompletionClient, free_port
from conftest import is_idle
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_baton import ServedBaton, wait_until

LONG = {"prompt": "Once upon a time", "max_tokens": 3700, "ignore_eos": True, "temperature": 0}


def long_call(client, **options):
    """A call that keeps the workers busy for seconds, with its first message read."""
    more = {name: options.pop(name) for name in list(options) if name in ("n", "logprobs")}
    stream = client.Generate(client.request(**LONG, **more), **options)
    next(stream)
    return stream


def test_reflection_lists_the_service(client):
    services = set(client.reflection.get_services())
    assert {"baton.v1.Completion", "grpc.reflection.v1alpha.ServerReflection"} <= services


def test_the_first_message_names_request_and_model(client):
    stream = client.Generate(client.request(prompt="a", max_tokens=1),
                             metadata=[("x-request-id", "mine-7")], timeout=10)
    first, *_ = stream
    assert (first.id, first.model) == ("mine-7", "baton-demo")
    assert first.system_fingerprint.startswith("baton-")


def test_a_cancelled_call_frees_its_pages(served, client):
    stream = long_call(client, n=4)
    wait_until(lambda: served.get("/v1/cluster")["requests"]["running"] == 4, 10)
    stream.cancel()
    began = time.monotonic()
    wait_until(lambda: is_idle(served), 10)
    assert time.monotonic() - began < 0.5
    with pytest.raises(grpc.RpcError) as caught:
        list(stream)
    assert caught.value.code() == grpc.StatusCode.CANCELLED


def test_a_deadline_frees_pages_within_100_ms(served, client):
    late = []
    for _ in range(5):
        deadline = time.monotonic() + 0.5
        with pytest.raises(grpc.RpcError) as caught:
            list(long_call(client, n=2, timeout=0.5))
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: is_idle(served), 10)
        late.append(time.monotonic() - deadline)
    # The machine may be busy with others: the best of five is what Baton needs.
    assert min(late) < 0.1, late


def test_a_lost_connection_frees_its_pages(served):
    client = CompletionClient(served.grpc_port, **{"grpc.use_local_subchannel_pool": 1})
    long_call(client, n=2)
    client.close()
    wait_until(lambda: is_idle(served), 10)


def test_a_client_that_does_not_read_is_cancelled(served):
    client = CompletionClient(served.grpc_port, **{
        "grpc.use_local_subchannel_pool": 1, "grpc.http2.bdp_probe": 0,
        "grpc.http2.lookahead_bytes": 8192})
    stream = long_call(client, n=8, logprobs=20)
    wait_until(lambda: is_idle(served), 60)
    with pytest.raises(grpc.RpcError) as caught:
        list(stream)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    client.close()


def test_loads_tell_of_each_worker(client):
    """Calls that are read follow each other, so that how long one lasts does not matter."""
    ends, failures, seen = threading.Event(), [], {}

    def keep_busy():
        try:
            while not ends.is_set():
                stream = client.Generate(client.request(**LONG, n=3))
                for _ in stream:
                    if ends.is_set():
                        stream.cancel()
                        break
        except grpc.RpcError as error:
            failures.append(error)

    def are_told():  # workers tell of their rows a little later than the router of its requests
        told = client.GetLoads(client.message("GetLoadsRequest"), timeout=10)
        rows = sum(worker.decode_rows for worker in told.workers)
        seen[told.running, told.waiting, rows] = told
        return failures or (3, 0, 3) in seen

    reader = threading.Thread(target=keep_busy)
    reader.start()
    try:
        wait_until(are_told, 30)
    except AssertionError as error:
        raise AssertionError(f"running, waiting, rows: {list(seen)}") from error
    finally:
        ends.set()
        reader.join()
    assert not failures
    told = seen[3, 0, 3]
    assert told.ready
    assert {worker.role for worker in told.workers} == {"prefill", "decode"}
    busy = [worker for worker in told.workers if worker.decode_rows]
    assert sum(worker.requests for worker in busy) >= 3
    assert all(worker.kv_pages_free < worker.kv_pages_total for worker in busy)
    assert all(worker.max_batch >= worker.decode_rows for worker in told.workers)


def test_models(client):
    models = client.ListModels(client.message("ListModelsRequest"), timeout=10).models
    assert [model.id for model in models] == ["baton-demo"]
    assert models[0].max_model_len > 0 and models[0].n_vocab > 0


def test_health_follows_readiness(served, client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    for service in ("", "baton.v1.Completion"):
        request = health_pb2.HealthCheckRequest(service=service)
        assert stub.Check(request, timeout=10).status == serving
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=10)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND

    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
    assert next(watch).status == serving
    worker, = served.children("decode")
    os.kill(worker, signal.SIGKILL)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert next(watch).status == serving
    watch.cancel()
    assert client.generate(prompt="a", max_tokens=2).usage.completion_tokens == 2


def test_shutdown_lets_calls_end(binary):
    port = free_port()
    server = ServedBaton(binary, "--demo", "--grpc-port", str(port), "--log.level=warn")
    client = CompletionClient(port)
    request = client.request(prompt="a", max_tokens=400, ignore_eos=True, n=4)
    stream = client.Generate(request, timeout=60)
    next(stream)
    statuses = []
    ended = threading.Thread(target=lambda: statuses.append(server.terminate()))
    ended.start()

    def is_refused():
        try:
            client.generate(prompt="a", max_tokens=1)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.UNAVAILABLE
        return False

    wait_until(is_refused, 10)
    assert health_pb2_grpc.HealthStub(client.channel).Check(
        health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.NOT_SERVING
    *_, last = stream
    assert last.usage.completion_tokens == 1600
    ended.join()
    assert statuses == [0], server.log()
    client.close()


def test_calls_that_last_longer_than_the_shutdown_are_cut_off(binary):
    port = free_port()
    server = ServedBaton(binary, "--demo", "--grpc-port", str(port), "--log.level=warn",
                         "--server.shutdown_timeout=500ms")
    client = CompletionClient(port)
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
    next(watch)
    stream = long_call(client, n=8)
    assert server.terminate() == 0, server.log()
    with pytest.raises(grpc.RpcError) as caught:
        list(stream)
    assert caught.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    client.close()


def test_plain_gRPC_beyond_this_machine_is_refused(binary):
    refused = subprocess.run(
        [binary, "serve", "--demo", "--host", "0.0.0.0", "--port", "0", "--grpc-port",
         str(free_port()), "--allow-unauthenticated"], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    assert "server.tls_cert" in refused.stderr + refused.stdout


def test_gRPC_over_tls(binary, tmp_path):
    key, cert, port = tmp_path / "key.pem", tmp_path / "cert.pem", free_port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key,
                    "-out", cert], check=True, capture_output=True)
    server = subprocess.Popen([binary, "serve", "--demo", "--port", "0", "--grpc-port", str(port),
                               f"--server.tls_cert={cert}", f"--server.tls_key={key}"])
    try:
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60, wait_for_ready=True)
            while next(watch).status != health_pb2.HealthCheckResponse.SERVING:
                pass
            watch.cancel()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as plain, pytest.raises(grpc.RpcError):
            health_pb2_grpc.HealthStub(plain).Check(health_pb2.HealthCheckRequest(), timeout=5)
    finally:
        server.terminate()
    assert server.wait(30) == 0


def test_a_crowd_that_comes_and_goes_leaves_nothing(served, client):
    """Calls that end in every way, at random times; those that are read to the end are whole."""
    draw = random.Random(7)

    def call(plan):
        how, when, n_tokens = plan
        stream = client.Generate(
            client.request(prompt="Once upon a time", max_tokens=n_tokens, ignore_eos=True, n=2),
            timeout=when if how == "deadline" else 60)
        try:
            for i, response in enumerate(stream):
                if how == "cancel" and i >= when * 100:
                    stream.cancel()
                if response.HasField("usage"):
                    return response.usage.completion_tokens == 2 * n_tokens
        except grpc.RpcError as error:
            return error.code().name == {"deadline": "DEADLINE_EXCEEDED", "cancel": "CANCELLED"}[how]
        return False

    plans = [(draw.choice(["read", "cancel", "deadline"]), draw.uniform(0, 0.1), draw.randint(1, 60))
             for _ in range(400)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert all(pool.map(call, plans))
    wait_until(lambda: is_idle(served), 10)
