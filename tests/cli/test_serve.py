"""`rtagent serve`, before anything is started: its log, its warning, and how it is protected."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rtagent.cli import command_parser
from rtagent.cli import serve as serving
from rtagent.config_sources import load_config


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Serve at an address, with settings; what was asked for on the way."""
    asked: dict[str, Any] = {}

    def serve(address: str, *settings: str) -> dict[str, Any]:
        sock = SimpleNamespace(getsockname=lambda: (address, 8008))
        monkeypatch.setattr(serving, "bind", lambda *_: nullcontext(sock))
        monkeypatch.setattr(serving, "_supervise", lambda *_: None)
        monkeypatch.setattr(serving, "tls_context", lambda *given: given[0])
        monkeypatch.setattr(serving, "log_to_stderr", lambda *log: asked.update(log=log))
        monkeypatch.setattr(
            serving, "spare_or_sacrifice", lambda score: asked.update(protected=score)
        )
        config = load_config(None, [f"run.state_dir={tmp_path}", *settings], {})
        before = os.umask(0o022)
        try:
            assert serving.serve(config, quiet=False, log_format="json") == 0
            assert os.umask(before) == 0o077
        finally:
            os.umask(before)
        return asked

    return serve


def test_the_log_is_as_asked_for_and_the_kernel_spares_the_daemon(served: Any) -> None:
    found = served("127.0.0.1")
    assert found["log"] == ("json", logging.INFO)
    assert found["protected"] < 0


@pytest.mark.parametrize(("address", "settings", "warned"), [
    ("192.0.2.1", ["service.insecure=true"], True),
    ("127.0.0.1", ["service.insecure=true"], False),
    ("192.0.2.1", ["service.insecure=true", "service.certificate=here.pem"], False),
])
def test_who_can_be_reached_without_encryption_is_warned(
    served: Any, caplog: pytest.LogCaptureFixture, address: str, settings: list[str], warned: bool
) -> None:
    served(address, *settings)
    assert (serving.INSECURE in caplog.messages) == warned


@pytest.mark.parametrize("name", ["2025", "a\"b", "é", "😀", "a\x7f", "\udcff"])
def test_the_state_directory_may_have_any_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(serving, "serve", lambda config, **_: str(config.state_dir) == name)
    assert serving.run(command_parser("serve").parse_args(["--state-dir", name]))
