"""A service as a process: its socket, its certificate, its lock, and an orderly end."""

import json
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.http_wire import wire
from tests.support.requests import Request, stranger
from tests.support.servers import make_context, serving, write_certificate
from veiltab.errors import ConnectionFailedError, ParameterError, StateError
from veiltab.party.remote import Reach, RemoteServer, Retry
from veiltab.server.http.app import Address, _listen, serve

ONCE = Retry(attempts=1)


@pytest.mark.slow
def test_a_running_request_is_finished(tmp_path: Path) -> None:
    """SIGTERM ends the service after it, and nothing new is taken in the meantime."""
    with serving(tmp_path) as served:
        server = RemoteServer.discover(served.url, retry=ONCE)
        body = b'{"identity":{},"invitation":"x"}'
        request = stranger(server.party_id).sign(Request("POST", "/v1/parties", body))
        with wire(served.url) as opened, wire(served.url) as idle:
            idle.begin(Request("GET", "/healthz"))
            assert idle.answer().status == 200
            opened.begin(request, Content_Length=str(len(body)))
            opened.send(body[:10])
            assert httpx.get(f"{served.url}/healthz").status_code == 200
            served.process.send_signal(signal.SIGTERM)
            _wait_until_closed(served.url)
            assert served.process.poll() is None
            opened.send(body[10:])
            answer = opened.answer()
        assert (answer.status, answer.code) == (422, "malformed_message")
        assert served.wait() in (0, -signal.SIGTERM)
    log = [json.loads(line) for line in served.log.read_text(encoding="utf-8").splitlines()]
    assert {entry["level"] for entry in log} == {"info"}
    assert [entry["route"] for entry in log if entry["event"] == "request"][-1] == "/v1/parties"


@pytest.mark.slow
def test_a_directory_has_one_server(tmp_path: Path) -> None:
    """A second process is told so; after the first one's end, even a violent one, it may start."""
    with serving(tmp_path) as served:
        context = make_context(tmp_path / "data")
        with (
            _listen(Address(port=0)) as opened,
            pytest.raises(StateError, match="another server"),
        ):
            serve(context, Address(port=0), [opened], lambda _: None)
        context.database.close()
        served.process.kill()
        served.wait()
    with serving(tmp_path) as again:
        assert httpx.get(f"{again.url}/readyz").status_code == 200


@pytest.mark.slow
def test_tls(tmp_path: Path) -> None:
    """A client that knows the certificate is served, and any other says what is wrong."""
    certificate, key = write_certificate(tmp_path)
    options = ("--tls-cert", certificate, "--tls-key", key, "--name", "server")
    with serving(tmp_path, *options) as served:
        assert served.url.startswith("https://127.0.0.1:")
        identity = RemoteServer.discover(served.url, retry=ONCE, reach=Reach(ca_file=certificate))
        with pytest.raises(ConnectionFailedError) as caught:
            RemoteServer.discover(served.url, retry=ONCE)
        with pytest.raises(ConnectionFailedError):
            RemoteServer.discover(served.url.replace("https", "http"), retry=ONCE)
        assert served.process.poll() is None
    assert identity.name == "server"
    assert "certificate" in caught.value.message
    assert "CA file" in caught.value.hint


def test_unusable_certificates_are_refused(tmp_path: Path) -> None:
    """Missing, or anything but a certificate; the directory is free again afterwards."""
    certificate, key = write_certificate(tmp_path)
    (tmp_path / "junk").write_text("junk")
    context = make_context(tmp_path / "data")
    for pair in ((tmp_path / "none", key), (tmp_path / "junk", key), (certificate, certificate)):
        address = Address(port=0, certificate=pair[0], certificate_key=pair[1])
        with (
            _listen(address) as opened,
            pytest.raises(ParameterError, match="certificate") as caught,
        ):
            serve(context, address, [opened], lambda _: None)
        assert "--tls-cert" in caught.value.hint
    with context.folders.lock():
        context.database.close()


def test_half_a_certificate_is_refused(tmp_path: Path) -> None:
    """Before it could be served without."""
    with pytest.raises(ParameterError, match="TLS"):
        Address(certificate=tmp_path)
    with pytest.raises(ParameterError, match="TLS"):
        Address(certificate_key=tmp_path)
    assert Address().scheme == "http"
    assert Address(certificate=tmp_path, certificate_key=tmp_path).scheme == "https"


def test_a_port_that_is_taken_is_named() -> None:
    """Before anything starts."""
    with _listen(Address(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ParameterError, match=re.escape(f"127.0.0.1 port {port}")) as caught:
            _listen(Address(port=port))
    assert "--port" in caught.value.hint


def test_a_host_that_is_none_is_named() -> None:
    """With the option that is wrong."""
    with pytest.raises(ParameterError, match="no such host"):
        _listen(Address(host="no such host"))


def test_answers_are_not_held_back() -> None:
    """A body does not wait until its headers are acknowledged: that would cost 40 ms each time."""
    with (
        _listen(Address(port=0)) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def _wait_until_closed(url: str) -> None:
    """Wait until the service takes no new connections."""
    for _ in range(1000):
        try:
            httpx.get(f"{url}/healthz")
        except httpx.TransportError:
            return
    raise AssertionError("the service still answers")
