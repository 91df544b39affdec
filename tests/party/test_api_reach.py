"""How a server is reached: safe URLs, proxies that are named, certificates that are known."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.answers import client
from tests.support.http_wire import FakeTime, Reply, scripted_server
from tests.support.messages import filler
from veiltab.errors import ConnectionFailedError, ParameterError
from veiltab.party.connection import checked_url
from veiltab.party.remote import Reach

STUDY = filler("study")
EMPTY = Reply(body=b'{"chunks":[]}')


def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is named on purpose, or there is none."""
    with scripted_server(Reply(418, b"")) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with scripted_server(EMPTY) as http, client(http.url, FakeTime()) as server:
            assert server.sent_chunks(STUDY) == set()
        assert proxy.seen == []


def test_a_proxy_can_be_named() -> None:
    """It gets the request, which is signed for the server all the same."""
    with (
        scripted_server(EMPTY) as proxy,
        client("http://127.0.0.1:9", FakeTime(), reach=Reach(proxy=proxy.url)) as server,
    ):
        assert server.sent_chunks(STUDY) == set()
    assert proxy.seen[0].target == f"http://127.0.0.1:9/v1/studies/{STUDY.hex()}/chunks"


@pytest.mark.parametrize("proxy", ["http://me:word@proxy", "socks5://proxy", "proxy", "http://\0"])
def test_unsafe_proxies_are_refused(proxy: str) -> None:
    """A password in a URL ends up in logs and process lists."""
    with pytest.raises(ParameterError) as caught:
        client("https://stats.example.org", FakeTime(), reach=Reach(proxy=proxy))
    assert "word" not in caught.value.message.replace("password", "")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://stats.example.org", "https://stats.example.org"),
        ("https://stats.example.org/", "https://stats.example.org"),
        ("HTTPS://Stats.Example.org:8443/", "https://stats.example.org:8443"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://127.1.2.3", "http://127.1.2.3"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_safe_urls(url: str, expected: str) -> None:
    """Encrypted, or on this computer."""
    assert checked_url(url, allow_insecure=False) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "stats.example.org",
        "ftp://stats.example.org",
        "https://",
        "https:///v1",
        "https://me:topword@stats.example.org",
        "https://me@stats.example.org",
        "https://stats.example.org/service",
        "https://stats.example.org/?key=topword",
        "https://stats.example.org/#topword",
        "http://stats.example.org",
        "http://192.168.0.1",
        "http://localhost.example.org",
        "http://0.0.0.0",
        "http://[",
        "https://stats.example.org:port",
    ],
)
def test_unsafe_urls_are_refused(url: str) -> None:
    """Without repeating what may be a secret."""
    with pytest.raises(ParameterError) as caught:
        client(url, FakeTime())
    assert "topword" not in str(caught.value)


def test_plain_http_can_be_allowed() -> None:
    """For networks that are encrypted in another way."""
    assert checked_url("http://192.168.0.1:80", allow_insecure=True) == "http://192.168.0.1"
    with pytest.raises(ParameterError):
        checked_url("ftp://192.168.0.1", allow_insecure=True)


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Make a certificate for this computer that nobody else vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    ca_file, both = folder / "ca.pem", folder / "both.pem"
    ca_file.write_bytes(made.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both.write_bytes(private + ca_file.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, ca_file


def test_certificates(tmp_path: Path) -> None:
    """An unknown one ends it at once; one that the CA file vouches for is fine."""
    tls, ca_file = certificate(tmp_path)
    with scripted_server(EMPTY, tls=tls) as http:
        time = FakeTime()
        with (
            client(http.url, time) as server,
            pytest.raises(ConnectionFailedError, match="certificate") as caught,
        ):
            server.sent_chunks(STUDY)
        assert "CA file" in caught.value.hint
        assert time.slept == []
        assert http.seen == []
        with client(http.url, time, reach=Reach(ca_file=ca_file)) as server:
            assert server.sent_chunks(STUDY) == set()


def test_plain_http_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual ones take longer to read than most commands take to ask a server on this machine.

    With https they are read.
    """
    read: list[object] = []

    def create(*_: object, **named: object) -> ssl.SSLContext:
        read.append(named)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(ssl, "create_default_context", create)
    client("http://127.0.0.1:1", FakeTime()).close()
    assert read == []
    client("https://stats.example.org", FakeTime()).close()
    assert len(read) == 1


def test_unusable_ca_files_are_refused(tmp_path: Path) -> None:
    """One that is not there, and one without certificates."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for path in (empty, tmp_path / "missing.pem"):
        with pytest.raises(ParameterError, match=path.name):
            client("https://stats.example.org", FakeTime(), reach=Reach(ca_file=path))
