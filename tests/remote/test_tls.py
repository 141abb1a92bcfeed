"""A policy server behind TLS: one that knows it, ours, and who speaks something else."""

from __future__ import annotations

import contextlib
import shutil
import ssl
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.files.certificate import tls_context
from rtagent.remote.protocol import decode, encode
from rtagent.remote.wire import LostError, Wire
from tests.installed import needs
from tests.remote.serving import SHAPE, ask, dialled, openpi_like, policy_server, served
from tests.service.certificates import Certificate, make_certificate

pytestmark = needs(shutil.which("openssl"), "OpenSSL")


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


def actions(wire: Wire, observation: np.ndarray) -> np.ndarray:
    found: np.ndarray = decode(ask(wire, encode({"observation": observation})))["actions"]
    wire.close()
    return found


def test_a_server_behind_tls_is_asked_if_its_certificate_is_good(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def infer(question: dict[str, Any]) -> dict[str, Any]:
        return {"actions": question["observation"]}

    tls = tls_context(certificate.certificate, certificate.key)
    with openpi_like(infer, tls=tls) as address:
        address = address.replace("ws:", "wss:")
        with pytest.raises(LostError, match="certificate is not good"):
            dialled(address)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        np.testing.assert_array_equal(actions(dialled(address), np.ones((1, 2))), np.ones((1, 2)))


def test_our_server_speaks_tls_and_nothing_else(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_certificate(tmp_path, "other.example")
    tls = tls_context(certificate.certificate, certificate.key)
    with policy_server(served(), tls=tls) as (address, _):
        with pytest.raises(LostError, match=r"^(the connection was closed|no websocket)[^\n]+$"):
            dialled(address)
        address = address.replace("ws:", "wss:")
        for trusted in (None, other):
            if trusted is not None:
                monkeypatch.setenv("SSL_CERT_FILE", str(trusted.certificate))
            with pytest.raises(LostError, match=r"certificate is not good: [^\n]+$"):
                dialled(address)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        seen = np.full(SHAPE, 2.0, np.float32)
        np.testing.assert_array_equal(actions(dialled(address), seen), [[2]])


def test_no_ticket_follows_the_handshake(certificate: Certificate) -> None:
    """It would be read while the policy's other thread writes, and fail now and then."""
    tls = tls_context(certificate.certificate, certificate.key)
    dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    dialling.check_hostname, dialling.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dialling.wrap_bio(to_client, to_server)
    server = tls.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.version() == server.version() == "TLSv1.3"
    assert to_client.pending == 0


def test_a_server_without_tls_is_one_line() -> None:
    with policy_server(served()) as (address, _), pytest.raises(LostError, match="no TLS there"):
        dialled(address.replace("ws:", "wss:"))
