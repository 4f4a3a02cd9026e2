"""Tokens and TLS: who may call a server, over REST, gRPC and from a browser."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.serving import Client
from vsemb.serving.access import TOKEN, Access, read_token
from vsemb.serving.server import Server, _greeting
from vsemb.serving.transports import ServingError

SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout {key} -out {cert}"
    names = ["-subj", "/CN=vsemb", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made.split(), *names], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def guarded(everything: Path, certificate: tuple[Path, Path]):
    access = Access(SECRET, *certificate)
    with Server({"everything": everything}, port=0, rest_port=0, poll=0, access=access) as server:
        yield server


@pytest.fixture(params=["https", "grpcs"])
def url(request: pytest.FixtureRequest, guarded: Server) -> str:
    return f"{request.param}://127.0.0.1:{guarded.rest_port if request.param == 'https' else guarded.port}"


def test_a_client_with_the_token_and_the_authority_is_answered(
    url: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(url, "everything", token=SECRET, ca_file=certificate[0]) as client:
        np.testing.assert_array_equal(client.predict(x=[1.0])["y"], [2.5])
        assert SECRET not in f"{client!r} {client._transport!r}"
    monkeypatch.setenv(TOKEN, SECRET)
    with Client(url, "everything", ca_file=certificate[0]) as client:
        assert client.status()[0].state == "AVAILABLE"


@pytest.mark.parametrize("token", [None, SECRET[:-1] + "E"])
def test_others_are_refused(
    url: str, certificate: tuple[Path, Path], token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    with Client(url, "everything", token=token, ca_file=certificate[0]) as client:
        for call in (client.status, client.signatures):
            with pytest.raises(ServingError, match="must carry the server's token") as caught:
                call()
            assert caught.value.code == "UNAUTHENTICATED"


def test_an_unknown_authority_is_no_server(url: str) -> None:
    with Client(url, "everything", token=SECRET, retries=0, timeout=5) as client:
        with pytest.raises(ServingError, match="No server answers") as caught:
            client.status()
        assert caught.value.code == "UNAVAILABLE"


def test_metrics_and_unknown_paths_need_the_token_too(guarded: Server, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    for path in ("metrics", "nothing", "v1/models/everything:predict"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"https://127.0.0.1:{guarded.rest_port}/{path}", timeout=60)
        assert caught.value.code == 401
        assert caught.value.headers["WWW-Authenticate"] == "Bearer"
        caught.value.close()


def test_printed_commands_name_the_variable_and_not_the_token(guarded: Server) -> None:
    printed = _greeting(guarded)
    assert f'curl -H "Authorization: Bearer ${TOKEN}" -d ' in printed
    assert "REST  https://127.0.0.1:" in printed
    assert SECRET not in printed


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_a_token(host: str, everything: Path) -> None:
    with raises_argument("host"):
        Server({"everything": everything}, host=host)
    Server({"everything": everything}, host=host, access=Access(SECRET))
    Server({"everything": everything}, host=host, access=Access(insecure=True))
    for loopback in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        Access().require_for(loopback)


@pytest.mark.parametrize(
    ("header", "passes"),
    [
        (f"Bearer {SECRET}", True),
        (f"bearer {SECRET}", True),
        ("Basic " + base64.b64encode(f"anyone:{SECRET}".encode()).decode(), True),
        ("Basic " + base64.b64encode(SECRET.encode()).decode(), False),
        ("Basic !", False),
        (f"Digest {SECRET}", False),
        (SECRET, False),
        ("Bearer", False),
        ("Bearer \udcff", False),
        ("", False),
    ],
)
def test_headers(header: str, passes: bool) -> None:
    assert Access(SECRET).allows(header) is passes


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert read_token() is None
    monkeypatch.setenv(TOKEN, "of-the-environment")
    (tmp_path / "token").write_text(f"{SECRET}\n")
    assert (read_token(), read_token(tmp_path / "token")) == ("of-the-environment", SECRET)
    with pytest.raises(DataError, match="Cannot read the token of"):
        read_token(tmp_path / "none")
    for bad in ("", "short", "with a space in between", f"{SECRET}\r\nHost: x"):
        with pytest.raises(InvalidArgumentError, match="at least 16 letters") as caught:
            Access(bad)
        assert not bad or bad not in str(caught.value)


def test_certificates_that_cannot_be_used(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with raises_argument("tls_key"):
        Access(tls_cert=cert)
    with pytest.raises(DataError, match="must be a PEM certificate and its key"):
        Access(tls_cert=cert, tls_key=tmp_path / "none")
    with pytest.raises(DataError, match="must be a PEM certificate and its key"):
        Access(tls_cert=key, tls_key=cert)
    for bad in (tmp_path / "none", key):
        with pytest.raises(DataError, match="must be a PEM file of certificates"):
            Client("https://127.0.0.1:1", "everything", ca_file=bad)


def test_the_demonstration_asks_for_the_token_as_password() -> None:
    pytest.importorskip("starlette")
    from vsemb.demo.server import Guard

    sent = []

    async def page(scope, receive, send):
        sent.append("page")

    async def send(message):
        sent.append(message.get("status"))

    def ask(**scope) -> list:
        sent.clear()
        asyncio.run(Guard(page, Access(SECRET))({"type": "http", "headers": [], **scope}, None, send))
        return sent

    password = base64.b64encode(f"me:{SECRET}".encode())
    assert ask() == [401, None]
    assert ask(headers=[(b"authorization", b"Basic " + password)]) == ["page"]
    assert ask(headers=[(b"authorization", b"Bearer wrong\xff")]) == [401, None]
    assert ask(type="lifespan") == ["page"]


@pytest.mark.parametrize("access", [Access(SECRET), Access(insecure=True)])
def test_a_token_or_a_gateway_accepts_every_name(access: Access) -> None:
    assert access.accepts_host("example.org", "127.0.0.1") and not Access().accepts_host("example.org", "127.0.0.1")
    assert Access().accepts_host("example.org", "0.0.0.0")


class Demonstration:
    """A page behind the guard of the demonstration, which keeps what is uploaded."""

    def __init__(self, folder: Path, **options: Any) -> None:
        pytest.importorskip("starlette")
        from vsemb.demo.server import Guard

        self.folder, self.saved = folder, 0
        self.guard = Guard(self.page, Access(), uploads=folder, **options)

    async def page(self, scope: Any, receive: Any, send: Any) -> None:
        self.saved += 1
        size = int(dict(scope["headers"]).get(b"content-length", b"0"))
        path = self.folder / f"{self.saved}.png"
        path.write_bytes(bytes(size))
        os.utime(path, ns=(self.saved, self.saved))
        await send({"status": 200})

    def ask(self, path: str = "/gradio_api/queue/join", method: str = "POST", **headers: str) -> int:
        """Return the status of an answer."""
        sent: list[int] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("status", 0))

        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": named}
        asyncio.run(self.guard(scope, None, send))
        return sent[0]


def test_the_demonstration_refuses_posts_of_other_pages(tmp_path: Path) -> None:
    ask = Demonstration(tmp_path).ask
    host = {"host": "localhost:7860"}
    # Programs, this page, this page in a browser without Sec-Fetch-Site, and this page behind a proxy.
    assert ask(**host) == 200
    assert ask(**host, origin="http://localhost:7860", sec_fetch_site="same-origin") == 200
    assert ask(**host, origin="http://localhost:7860") == 200
    assert ask(**host, origin="https://demo.example.org", x_forwarded_host="demo.example.org") == 200
    # Another page, another port of this machine, and a page without an origin.
    assert ask(**host, origin="https://example.org", sec_fetch_site="cross-site") == 403
    assert ask(**host, origin="http://localhost:8888", sec_fetch_site="same-site") == 403
    assert ask(**host, origin="http://localhost:8888") == 403
    assert ask(**host, origin="null") == 403
    assert ask(**host, method="GET", origin="https://example.org", sec_fetch_site="cross-site") == 200
    assert ask(host="rebound.example.org:7860") == 403


def test_the_uploads_of_the_demonstration_are_bounded(tmp_path: Path) -> None:
    page = Demonstration(tmp_path, most=1000)
    for _ in range(5):
        assert page.ask("/gradio_api/upload", content_length="300") == 200
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    # The newest stay.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.png", "4.png", "5.png"]
    assert page.ask("/gradio_api/upload", content_length="1001") == 413
    assert page.ask("/gradio_api/upload") == 411
    assert page.ask("/gradio_api/upload", content_length="9" * 99) == 411
    # Other requests than uploads.
    assert page.ask(content_length="300") == 200
    assert page.ask(content_length="1001") == page.ask(method="PUT", content_length="1001") == 413
    assert Demonstration(tmp_path).ask(content_length=str(2**20 + 1)) == 413
    assert page.ask(transfer_encoding="chunked") == 411
    assert len(list(tmp_path.iterdir())) == 4
