"""One server for all tests, and SDK clients whose exchanges are recorded and checked."""

import anthropic
import openai
import pytest
from api_description import ApiDescription
from exchange_check import check_exchange
from recorder import Recorder
from served_baton import ServedBaton

# Files run in this order at the end: faults disturb the server, totals look back at everything.
_LAST = ["test_faults.py", "test_totals.py"]

# Limits that a test reaches soon.
_SETTINGS = [
    "--served-model-name", "baton-demo", "--served-model-name", "baton-demo-alias",
    "--server.max_body=1MiB", "--server.header_timeout=2s", "--server.body_timeout=2s",
    "--server.max_choices=12", "--router.max_waiting=10", "--router.worker_silence=2s",
    "--router.worker_wait=0s", "--router.max_lost_attempts=1", "--log.level=warn",
    # Of two prefill workers the router takes the one that it predicts to be sooner, which need not
    # be the one that has the prompt cached: an agent's cached tokens grow for certain with one.
    "--prefill", "1",
    # Decoding stays with the decode worker, which tests of faults kill.
    "--router.local=false",
]


def pytest_addoption(parser):
    parser.addoption("--baton", required=True, help="the binary")
    parser.addoption("--node-modules", required=True, help="folder with the JavaScript SDK")
    parser.addoption("--schemas", type=int, default=24, help="random schemas of test_schemas.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _LAST.index(item.path.name) if item.path.name in _LAST else -1)


@pytest.fixture(scope="session")
def served(request):
    server = ServedBaton(request.config.getoption("--baton"), "--demo", *_SETTINGS)
    yield server
    status = server.terminate()
    assert status == 0, server.log()


@pytest.fixture(scope="session")
def description(served):
    return ApiDescription(served.get("/openapi.json"))


@pytest.fixture(scope="session")
def recorder():
    return Recorder()


@pytest.fixture(scope="session")
def openai_client(served, recorder):
    return openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0,
                         http_client=recorder.http_client("openai"))


@pytest.fixture(scope="session")
def anthropic_client(served, recorder):
    return anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0,
                               http_client=recorder.http_client("anthropic"))


class Cuts:
    """Tests that leave streams before their end, or break them, say so."""
    allowed = False


@pytest.fixture
def cuts():
    return Cuts()


@pytest.fixture(autouse=True)
def checked(recorder, description, cuts):
    """Whatever a test asked, all that it sent and got is right."""
    before = len(recorder.exchanges)
    yield
    for exchange in recorder.exchanges[before:]:
        try:
            check_exchange(exchange, description, cuts.allowed)
        except Exception as error:
            raise AssertionError(f"{error}\n\nin {exchange}") from error
