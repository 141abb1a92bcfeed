"""TLS: the certificate, the running service, and our own commands over it."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as open_websocket

from rtagent.cli.daemon import Daemon
from rtagent.errors import UserError
from rtagent.files.certificate import tls_context
from tests.forked import eventually
from tests.refused import one_line
from tests.service.certificates import Certificate, make_certificate
from tests.service.conftest import BEARER, TOKEN, RunningService, Serving, closed


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(
    serving: Serving, backend: Any, certificate: Certificate
) -> Iterator[RunningService]:
    """The service with TLS; it takes few connections and has little patience."""
    with serving(
        backend, certificate=certificate.certificate, private_key=certificate.key,
        most_connections=12, most_per_address=12, patience_s=1.0,
    ) as service:
        yield service


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.certificate))


def client_of(service: RunningService, certificate: Certificate) -> httpx.Client:
    return httpx.Client(
        base_url=f"https://127.0.0.1:{service.port}", verify=trusting(certificate), timeout=30.0,
        headers=BEARER, trust_env=False,
    )


def test_calls_login_and_socket_over_tls(secure: RunningService, certificate: Certificate) -> None:
    origin = f"https://127.0.0.1:{secure.port}"
    with client_of(secure, certificate) as client:
        assert client.get("/v1/stats").status_code == 200
        assert client.get("/v1/stats", headers={"origin": origin}).status_code == 200
        insecure = {"origin": f"http://evil.example:{secure.port}"}
        assert client.get("/v1/stats", headers=insecure).status_code == 403
        address = client.post("/v1/logins").json()["url"]
        assert address.startswith(f"{origin}/?code=")
        opened = client.get(address)
        assert "Secure" in opened.headers["set-cookie"]
        cookie = opened.headers["set-cookie"].partition(";")[0]

    async def look() -> Any:
        async with open_websocket(
            f"wss://127.0.0.1:{secure.port}/v1/screen", ssl=trusting(certificate),
            additional_headers={"cookie": cookie, "origin": origin},
        ) as screen:
            return await screen.recv()

    assert asyncio.run(look())[:4] == b"\x89PNG"


def test_whoever_speaks_no_tls_gets_nothing_and_shuts_nobody_out(
    secure: RunningService, certificate: Certificate, caplog: Any
) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(secure.connect()) for _ in range(60)]
        strangers[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        with client_of(secure, certificate) as client:
            assert client.get("/v1/status").status_code == 200

        assert eventually(lambda: all(map(closed, strangers)))
    assert caplog.records == []


def test_our_commands_trust_the_daemon_s_own_certificate_and_no_other(
    secure: RunningService, tmp_path: Path, certificate: Certificate
) -> None:
    url = f"https://localhost:{secure.port}/"
    daemon = Daemon(url, TOKEN, certificate=str(certificate.certificate))
    assert daemon.get("/v1/status")["run_id"] == "20250101-abcd"
    daemon.close()
    other = make_certificate(tmp_path)
    with pytest.raises(UserError, match="another certificate than the daemon's"):
        Daemon(url, TOKEN, certificate=str(other.certificate)).get("/v1/status")
    with pytest.raises(UserError, match="cannot read the daemon's certificate"):
        Daemon(url, TOKEN, certificate=str(tmp_path / "gone.pem"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"read the daemon's certificate .*: not a regular"):
        Daemon(url, TOKEN, certificate=str(pipe))


def test_a_certificate_that_cannot_be_used_is_refused_at_start(
    certificate: Certificate, tmp_path: Path
) -> None:
    assert not tls_context(None, None)
    assert tls_context(certificate.certificate, certificate.key)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.certificate.read_bytes() + certificate.key.read_bytes())
    assert tls_context(both, None)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("nothing of the kind")
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(
        ["openssl", "pkey", "-in", str(certificate.key), "-aes256", "-passout", "pass:secret",
         "-out", str(encrypted)], check=True, capture_output=True,
    )
    other = make_certificate(tmp_path, "other.example")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for pem, key, reason in (
        (None, certificate.key, "needs service.certificate"),
        (tmp_path / "gone", certificate.key, "service.certificate: cannot read"),
        (certificate.certificate, tmp_path / "gone", "service.private_key: cannot read"),
        (pipe, certificate.key, "service.certificate: cannot read .*: not a regular file"),
        (certificate.certificate, pipe, "service.private_key: cannot read .*: not a regular file"),
        (garbage, certificate.key, "cannot be used"),
        (certificate.certificate, garbage, "cannot be used"),
        (certificate.certificate, None, "cannot be used"),
        (certificate.certificate, other.key, "key values mismatch"),
        (certificate.certificate, encrypted, "cannot be used"),
    ):
        with one_line(reason):
            tls_context(pem, key)
