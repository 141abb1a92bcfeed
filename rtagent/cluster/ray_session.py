"""Joining a Ray cluster, or starting one on this machine, and reaching the learner there.

Ray is imported when a session begins. Every process of a local Ray is a descendant of the one that
began the session and ends with it (`remains.py`); it asks for a token that nobody else knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from rtagent.cluster.exchange import Remote
from rtagent.cluster.remains import end_session_with_this_process
from rtagent.errors import UserError

NAMESPACE = "rtagent"
RESOURCE = "learner"
CALLS_AT_ONCE = 1000
OBJECT_STORE_BYTES = 256 << 20
STATUS_S = 10.0
LOOPBACK = "127.0.0.1"
ANSWER_S = 3.0
"""How long the head of a cluster may take to answer the first knock."""
LONGEST_REASON = 200
INSTALL = "needs Ray: pip install 'rtagent[cluster]'"


def connect(address: str | None, resources: dict[str, float] | None = None) -> None:
    """Join a cluster.

    Args:
        address: `host:port` of its head; None: a Ray of this machine alone is started.
        resources: that this machine brings with it. With an address, a node of the cluster is
            started here for them; a Ray of this machine alone has one learner by default.

    Raises:
        UserError: there is no Ray, or nobody answers; one line that says what to do.
    """
    ray = _ray()
    if ray.is_initialized():
        return
    if address is not None:
        _check_answers(address)
        if resources:
            _start_node(address, resources)
    handlers = _handlers()
    options: dict[str, Any] = {
        "namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR",
    }
    try:
        if address is None:
            _own_token()
            with contextlib.suppress(PermissionError):
                end_session_with_this_process()
            ray.init(
                "local", num_cpus=1, resources=resources or {RESOURCE: 1.0},
                include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES,
                _node_ip_address=LOOPBACK, **options,
            )
        else:
            ray.init(address=address, **options)
    except (RuntimeError, ConnectionError, OSError, ValueError, ray.exceptions.RayError) as error:
        with contextlib.suppress(Exception):
            ray.shutdown()
        raise UserError(_why(error, address)) from error
    finally:
        # Ray puts handlers of its own in their place.
        for number, handler in handlers.items():
            signal.signal(number, handler)


def disconnect() -> None:
    """Leave the cluster; a local Ray ends."""
    ray = _ray()
    ray.shutdown()


class LearnerHandle(Remote):
    """The learner, wherever it runs.

    Args:
        actor: Ray's handle of it.
    """

    def __init__(self, actor: Any) -> None:
        self._ray = _ray()
        self._actor = actor
        self._open: list[Any] = []

    def begin(self, method: str, *arguments: Any) -> Hashable:
        """As `Remote` says."""
        reference = getattr(self._actor, method).remote(*arguments)
        self._open.append(reference)
        return reference  # type: ignore[no-any-return]

    def finished(self) -> list[tuple[Hashable, Any]]:
        """As `Remote` says."""
        if not self._open:
            return []
        done, self._open = self._ray.wait(self._open, num_returns=len(self._open), timeout=0.0)
        return [(reference, self._result(reference)) for reference in done]

    def status(self) -> dict[str, Any]:
        """What the learner says of itself.

        Raises:
            UserError: it does not answer.
        """
        try:
            found: dict[str, Any] = self._ray.get(self._actor.status.remote(), timeout=STATUS_S)
            return found
        except self._ray.exceptions.RayError as error:
            raise UserError(f"the learner does not answer: {_in_a_line(error)}") from error

    def _result(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except Exception as error:
            return error


def find_learner(name: str, folder: Path | None) -> LearnerHandle:
    """The cluster's learner of that name, which is started if it is not there.

    Args:
        name: of the actor.
        folder: where it writes its checkpoints, on the machine that it runs on.

    Raises:
        UserError: no node of the cluster has the resource `learner`.
    """
    ray = _ray()
    from rtagent.cluster.ray_learner import LearnerActor

    if ray.cluster_resources().get(RESOURCE, 0.0) < 1.0:
        raise UserError(
            f"no node of the cluster has the resource {RESOURCE}: start one with "
            f"`rtagent learner --address ... --resources {RESOURCE}=1`"
        )
    actor = (
        ray.remote(LearnerActor)
        .options(
            name=name, namespace=NAMESPACE, lifetime="detached", get_if_exists=True, num_cpus=0,
            resources={RESOURCE: 1.0}, max_restarts=-1, max_task_retries=0,
            max_concurrency=CALLS_AT_ONCE,
        )
        .remote(None if folder is None else str(folder))
    )
    return LearnerHandle(actor)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise UserError(INSTALL) from error
    return ray


def _check_answers(address: str) -> None:
    """Raises UserError if nobody listens there: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"cluster.address: {address!r} is not HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster at {address}: {_in_a_line(error)}") from error


def _start_node(address: str, resources: dict[str, float]) -> None:
    """Start a node of the cluster on this machine, which ends with this process.

    Raises:
        UserError: it does not start.
    """
    with contextlib.suppress(PermissionError):
        end_session_with_this_process()
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}",
        f"--resources={json.dumps(resources)}", "--disable-usage-stats",
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = said[-1] if said else "for no reason that it tells"
        raise UserError(f"no node can be started for {address}: {why}")


def _own_token() -> None:
    """A token for a Ray of this machine alone, known to its processes and to nobody else."""
    if not os.environ.get("RAY_AUTH_TOKEN") and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _handlers() -> dict[int, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}


def _why(error: BaseException, address: str | None) -> str:
    where = "a local Ray cannot be started" if address is None else f"no Ray cluster at {address}"
    return f"{where}: {_in_a_line(error)}"


def _in_a_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words[:LONGEST_REASON] or type(error).__name__
