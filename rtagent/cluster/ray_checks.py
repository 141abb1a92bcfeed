"""Whether a Ray cluster can be joined, and whether one that was joined is still the same.

If nothing answers, Ray itself waits for minutes, or ends the process; if a token is missing, it
ends the process; and it says little about why a token or a version does not fit. So each check here
is a small step that ends at once or within `ANSWER_S`, unless a head is lost within the
milliseconds of a first connection to it. Ray has no public interface for this: the functions here
use two classes of its core, the connection of the process, and the function by which Ray finds its
own processes. `test_ray.py` shows whether a new version of Ray still has them.
"""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any, NamedTuple

from rtagent.errors import UserError

ANSWER_S = 3.0
"""How long the head of a cluster may take to answer."""
HEAD_GONE_S = 15
"""How long after the head of their cluster Ray's processes end that are started here (by Ray's
default 60 s). Until then learning goes on."""
LONGEST_REASON = 200
INSTALL = "needs Ray: pip install 'rtagent[cluster]'"
TOKEN = "RAY_AUTH_TOKEN, or the file ~/.ray/auth_token"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""First bytes of a client of HTTP/2 (RFC 9113, Sec. 3.4), on which gRPC and so Ray are built."""
STDERR = 2
ALIVE = 0
"""State of a node that is alive, as Ray numbers it."""
FRAME_TYPE, SETTINGS = 3, 4
"""Index of the byte in a frame of HTTP/2 that is its type; type of a server's first frame."""


class LostError(UserError):
    """The cluster, this machine's node of it, or its learner is gone: join anew."""


class NotStartedError(LostError):
    """The learner could not start, and Ray does not start it again."""


class LocalNode(NamedTuple):
    """A node of a cluster that is alive and runs on this machine.

    Attributes:
        address: of its raylet.
        folder: of its files.
    """

    address: str
    folder: str


def imported_ray() -> Any:
    """The module `ray`, with the settings that every process of rtagent needs.

    Raises:
        UserError: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEAD_GONE_S))
    # A process that leaves a cluster waits until the head has taken the records of its calls, even
    # if the head is gone.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    # Ray 2.55 hides all GPUs from an actor that reserves none, as the learner.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(INSTALL) from error
    return ray


def find_cluster(address: str) -> Mapping[str, LocalNode]:
    """The nodes of the cluster at an address that are alive and run on this machine, by their ids.

    Args:
        address: `host:port`.

    Raises:
        UserError: it cannot be joined from this machine; one line that says why and what to do.
    """
    ray = imported_ray()
    _check_protocol(address)
    check_token(f"the Ray cluster at {address}")
    try:
        with _stderr_silenced():
            client: Any = import_module("ray._raylet").GcsClient(address=address)
            versions = client.internal_kv_get(
                b"CLUSTER_METADATA", namespace=b"cluster", timeout=ANSWER_S
            )
            found = _local_nodes(client)
        if versions:
            check_versions(address, json.loads(versions))
        return found
    except ray.exceptions.AuthenticationError as error:
        raise UserError(f"the Ray cluster at {address} refuses the token: put that of its head "
                        f"into {TOKEN}") from error
    except (ray.exceptions.RayError, RuntimeError, OSError, ValueError) as error:
        raise UserError(f"no Ray cluster at {address}: {in_a_line(error)}") from error


def find_joined(address: str) -> Mapping[str, LocalNode]:
    """Does what `find_cluster` does, for the cluster that this process has joined.

    It asks by the connection that this process has: where the head is lost while a new one is made,
    Ray ends the process.

    Raises:
        LostError: the cluster does not answer any more, or is another one.
    """
    ray = imported_ray()
    try:
        _check_protocol(address)
        return _local_nodes(import_module("ray._private.worker").global_worker.gcs_client)
    except UserError as error:
        raise LostError(str(error)) from error
    except ray.exceptions.AuthenticationError as error:
        raise LostError(f"the head of the cluster at {address} was started again") from error
    except (ray.exceptions.RayError, RuntimeError, OSError, ValueError) as error:
        raise LostError(f"no Ray cluster at {address}: {in_a_line(error)}") from error


def check_token(whose: str) -> None:
    """Check that there is a token that can be sent: otherwise Ray would end the process.

    Args:
        whose: what the token is for, for the message.

    Raises:
        UserError: there is none, or it cannot be sent.
    """
    ray = imported_ray()
    if os.environ["RAY_AUTH_MODE"] != "token":
        return
    loader: Any = import_module("ray._raylet").AuthenticationTokenLoader.instance()
    loader.reset_cache()
    try:
        token = loader.get_raw_token(ignore_auth_mode=True)
        usable = token.isascii() and token.isprintable()
    except UnicodeDecodeError:
        usable = False
    except ray.exceptions.AuthenticationError as error:
        # After the first sentence Ray gives general advice.
        raise UserError(f"no token for {whose}: {in_a_line(error).partition('. ')[0]}") from error
    else:
        if not token:
            raise UserError(f"no token for {whose}: put that of its head into {TOKEN}")
    if not usable:
        raise UserError(f"the token for {whose} is not printable ASCII: write it anew into {TOKEN}")


def check_versions(address: str, theirs: dict[str, Any]) -> None:
    """Check that Ray and Python are those of the cluster, as Ray itself does when a node joins.

    Args:
        address: of the cluster.
        theirs: `ray_version` and `python_version` of the cluster.

    Raises:
        UserError: one differs.
    """
    others = theirs["ray_version"], theirs["python_version"]
    if others != (own := (metadata.version("ray"), platform.python_version())):
        raise UserError(
            f"the cluster at {address} has Ray {others[0]} and Python {others[1]}, this machine "
            f"Ray {own[0]} and Python {own[1]}: install the same of both on every machine"
        )


@contextmanager
def _stderr_silenced() -> Iterator[None]:
    """Drop what Ray's core writes to stderr: it raises the same as exceptions."""
    kept = os.dup(STDERR)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), STDERR)
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def _local_nodes(client: Any) -> dict[str, LocalNode]:
    """The nodes that are alive and run on this machine, by their ids; `client` asks the head."""
    nodes = client.get_all_node_info(timeout=ANSWER_S)
    # Ray itself looks for the node by which a process joins among these.
    seen: Any = import_module("ray._private.services").find_node_ids()
    # A node inside a container is seen from outside, but a process there cannot join by it.
    return {
        number.hex(): LocalNode(str(info.node_manager_address), str(info.temp_dir))
        for number, info in nodes.items()
        if info.state == ALIVE and number.hex() in seen
        and is_own_address(info.node_manager_address)
    }


def is_own_address(address: str) -> bool:
    """Whether a numeric address is one of this machine, as this process sees it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def in_a_line(error: BaseException) -> str:
    """The text of an error, shortened to one line."""
    words = " ".join(str(error).split())
    return words[:LONGEST_REASON] or type(error).__name__


def _check_protocol(address: str) -> None:
    """Raise UserError unless a server of HTTP/2 answers, as the head of a cluster is one."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_S) as server:
            server.sendall(HTTP2_PREFACE)
            with server.makefile("rb") as answers:
                answer = answers.read(FRAME_TYPE + 1)
    except (OSError, UnicodeError) as error:
        # A name that no host can have, such as 10..0.0.1, cannot be encoded.
        raise UserError(
            f"no Ray cluster at {address}: {in_a_line(error)}; is the address right, and does its "
            "head run there (ray start --head)?"
        ) from error
    if answer[FRAME_TYPE:] != bytes((SETTINGS,)):
        raise UserError(
            f"no Ray cluster at {address}: the server there is not the head of a cluster; give the "
            "address that `ray start --head` has printed"
        )
