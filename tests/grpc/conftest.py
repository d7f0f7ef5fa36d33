"""One server with both APIs for all tests, and a client of gRPC."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "sdk"))

from completion_client import CompletionClient, free_port  # noqa: E402
from served_baton import ServedBaton, wait_until  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--baton", required=True, help="the binary")


@pytest.fixture(scope="session")
def binary(request):
    return request.config.getoption("--baton")


@pytest.fixture(scope="session")
def served(binary):
    port = free_port()
    server = ServedBaton(binary, "--demo", "--grpc-port", str(port), "--log.level=warn",
                         "--server.max_unsent=64KiB", "--server.max_body=1MiB",
                         "--router.worker_silence=2s", "--served-model-name", "baton-demo")
    server.grpc_port = port
    yield server
    status = server.terminate()
    assert status == 0, server.log()


@pytest.fixture(scope="session")
def client(served):
    client = CompletionClient(served.grpc_port)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def idle(served):
    """After every test the cluster is as before: nothing runs, and all pages are free."""
    yield
    wait_until(lambda: is_idle(served), 30)


def is_idle(served):
    cluster = served.get("/v1/cluster")
    requests, pages = cluster["requests"], cluster["kv_pages"]
    return cluster["ready"] and not any(requests.values()) and (
        pages["free"], pages["promised"]) == (pages["total"], 0)
