"""A policy server behind TLS."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.clock import MonotonicClock
from rtagent.remote.protocol import decode, encode
from rtagent.remote.wire import LostError, WebsocketDialer
from tests.remote.serving import openpi_like
from tests.service.certificates import make_certificate


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no OpenSSL")
def test_a_server_behind_tls_is_asked_if_its_certificate_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def infer(question: dict[str, Any]) -> dict[str, Any]:
        return {"actions": question["observation"]}

    made = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    with openpi_like(infer, tls=context) as address:
        dialer = WebsocketDialer(address.replace("ws:", "wss:"), None, MonotonicClock())
        dialer.dial()
        with pytest.raises(LostError, match="certificate is not good"):
            dialer.outcome(30.0)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
        dialer.dial()
        wire = dialer.outcome(30.0)
        assert wire is not None
        wire.send(encode({"observation": np.ones((1, 2))}))
        answer = wire.receive(30.0)
        assert answer is not None
        np.testing.assert_array_equal(decode(answer)["actions"], np.ones((1, 2)))
        wire.close()
