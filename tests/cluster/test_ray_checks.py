"""Why a cluster cannot be joined: no cluster, no token, other versions; without Ray's processes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest
from ray.exceptions import AuthenticationError, RpcError

from rtagent.cluster import ray_checks
from rtagent.errors import UserError
from tests.refused import one_line

SETTINGS_FRAME = b"\0\0\0\4"
"""How a server begins that speaks HTTP/2, as Ray does."""


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """The address of a server that answers so once. If None, it never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    over.wait(10)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


@pytest.mark.parametrize("host", ["10..0.0.1", "x" * 64])
def test_a_name_that_no_host_can_have_is_reported(host: str) -> None:
    with pytest.raises(UserError, match=f"no Ray cluster at {host}:6379: .*; is the address right"):
        ray_checks.find_cluster(f"{host}:6379")


@pytest.mark.parametrize(("answer", "why"), [
    (b"HTTP/1.0 400 Bad Request", "the server there is not the head of a cluster"),
    (b"", "the server there is not the head of a cluster"),
    (None, "timed out"),
])
def test_a_server_that_is_no_head_is_reported_at_once(
    answer: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_checks, "ANSWER_S", 0.2 if answer is None else 30.0)
    with (
        answering(answer) as address,
        one_line(f"^no Ray cluster at {address}: {why}; ", "ray start --head"),
    ):
        ray_checks.find_cluster(address)


def test_a_head_whose_first_bytes_come_apart_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each read of such a socket gives one of the messages.
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(socket, "create_connection", lambda *_: here)
    with there:
        there.send(SETTINGS_FRAME[:2])
        there.send(SETTINGS_FRAME[2:])
        ray_checks._check_protocol("127.0.0.1:6379")


@pytest.mark.parametrize(("token", "why"), [
    (None, "no token for X: put that of its head into RAY_AUTH_TOKEN, or"),
    ("two\nlines", "the token for X is not printable ASCII: write it anew into"),
    ("schl\u00fcssel", "the token for X is not printable ASCII: write"),
    ("\udcff", "the token for X is not printable ASCII: write"),
])
def test_a_token_that_cannot_be_sent_is_reported(
    token: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", token or "")
    with answering(SETTINGS_FRAME) as address, pytest.raises(UserError) as found:
        ray_checks.find_cluster(address)
    assert str(found.value).startswith(why.replace("X", f"the Ray cluster at {address}"))


def test_a_token_s_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with one_line(f"^no token for X: RAY_AUTH_TOKEN_PATH is set but .*{tmp_path}/none$"):
        ray_checks.check_token("X")


@pytest.mark.parametrize(("error", "why"), [
    (RpcError("Timed out", 4), "no Ray cluster at {}: Timed out"),
    (AuthenticationError("WrongClusterID"), "the head of the cluster at {} was started again"),
])
def test_a_joined_cluster_is_asked_by_the_connection_that_exists(
    error: Exception, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A head that answers once may be lost before another connection is made to it.
    connection = Mock(**{"get_all_node_info.side_effect": error})
    worker = import_module("ray._private.worker").global_worker
    monkeypatch.setattr(worker, "gcs_client", connection, raising=False)
    monkeypatch.delattr("ray._raylet.GcsClient")
    with answering(SETTINGS_FRAME) as address, pytest.raises(ray_checks.LostError) as found:
        ray_checks.find_joined(address)
    assert str(found.value) == why.format(address)
    with pytest.raises(ray_checks.LostError, match="Connection refused"):
        ray_checks.find_joined(address)


@pytest.mark.parametrize("name", [
    # A learner that reserves no GPU sees those of its machine.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    # A process leaves a cluster whose head is gone at once: some seconds later, Ray ends it.
    "RAY_task_events_report_interval_ms",
])
def test_what_ray_does_by_default_is_off_unless_the_environment_has_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that it is as it was after the test.
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    ray_checks.imported_ray()
    assert os.environ[name] == "0"
    monkeypatch.setenv(name, "1")
    ray_checks.imported_ray()
    assert os.environ[name] == "1"


def test_other_versions_are_named_on_both_sides() -> None:
    theirs = {"ray_version": "2.9.1", "python_version": "3.12.0"}
    told = "^the cluster at 10.0.0.1:6379 has Ray 2.9.1 and Python 3.12.0, this machine "
    with one_line(f"{told}.*: install the same of both on every machine$"):
        ray_checks.check_versions("10.0.0.1:6379", theirs)


@pytest.mark.parametrize(
    ("address", "own"), [("127.0.0.1", True), ("192.0.2.1", False), ("2001:db8::1", False)]
)
def test_a_node_is_here_only_if_its_address_is(address: str, own: bool) -> None:
    """The others are nobody's (RFC 5737, RFC 3849)."""
    assert ray_checks.is_own_address(address) is own
