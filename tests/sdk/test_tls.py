"""The OpenAI SDK over TLS, with a client certificate. The certificates are made here by openssl."""

import ssl
import subprocess

import httpx2
import openai
import pytest
from served_baton import ServedBaton


def _openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _make_authority(folder, name):
    _openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2",
             "-subj", f"/CN={name}")


def _issue(folder, name, authority):
    _openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n", encoding="ascii")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey",
             f"{authority}.key", "-CAcreateserial", "-days", "1", "-extfile", "names",
             "-out", f"{name}.pem")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls")
    for authority in ("servers", "clients", "foreign"):
        _make_authority(path, authority)
    _issue(path, "served", "servers")
    _issue(path, "good", "clients")
    _issue(path, "strange", "foreign")
    return path


@pytest.fixture(scope="module")
def tls_served(request, folder):
    server = ServedBaton(request.config.getoption("--baton"), "--demo",
                         "--tls-cert", str(folder / "served.pem"),
                         "--tls-key", str(folder / "served.key"),
                         "--tls-client-ca", str(folder / "clients.pem"))
    yield server
    assert server.terminate() == 0, server.log()


def _client(server, folder, certificate):
    context = ssl.create_default_context(cafile=folder / "servers.pem")
    if certificate:
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                         http_client=httpx2.Client(verify=context, timeout=60))


def _ask(client, stream):
    return client.chat.completions.create(
        model="demo", temperature=0, stream=stream,
        messages=[{"role": "user", "content": "What is 17 + 25?"}])


def test_a_client_with_a_certificate_is_answered(tls_served, folder):
    assert tls_served.url.startswith("https://")
    client = _client(tls_served, folder, "good")
    answer = _ask(client, stream=False).choices[0].message.content
    assert "42" in answer
    pieces = [chunk.choices[0].delta.content or "" for chunk in _ask(client, stream=True)
              if chunk.choices]
    assert len(pieces) > 2 and "".join(pieces) == answer


@pytest.mark.parametrize("certificate", [None, "strange"])
def test_a_client_without_a_good_one_is_refused(tls_served, folder, certificate):
    with pytest.raises(openai.APIConnectionError):
        _ask(_client(tls_served, folder, certificate), stream=False)
    assert _ask(_client(tls_served, folder, "good"), stream=False).choices
