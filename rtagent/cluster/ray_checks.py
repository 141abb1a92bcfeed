"""Whether a Ray cluster can be joined, and whether one that was joined is still the same.

Ray itself waits for minutes where nobody answers, ends the process where a token is missing, and
says little of why a token or a version does not fit. So it is asked in small steps, each of which
answers at once or within `ANSWER_S`. What asks are parts of Ray that are not its public interface:
`tests/cluster/test_ray_checks.py` and `test_ray.py` show whether a new version still has them.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any, NamedTuple

from rtagent.errors import UserError

ANSWER_S = 3.0
"""How long the head of a cluster may take to answer."""
LONGEST_REASON = 200
INSTALL = "needs Ray: pip install 'rtagent[cluster]'"
TOKEN = "RAY_AUTH_TOKEN, or the file ~/.ray/auth_token"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client of HTTP/2 begins (RFC 9113, Sec. 3.4): gRPC, and so Ray, speaks it."""
STDERR = 2
FRAME_TYPE, SETTINGS = 3, 4
"""The byte of a frame that says its type; the type that a server must begin with."""


class LostError(UserError):
    """What was joined is gone: join anew."""


class Cluster(NamedTuple):
    """A cluster that answers.

    Attributes:
        id: other than that of any other, and of itself after its head was started again.
        nodes: ids of those that are alive.
        here: of these, those of this machine.
    """

    id: str
    nodes: frozenset[str]
    here: frozenset[str]


def imported_ray() -> Any:
    """Ray, with what every process of ours wants of it.

    Raises:
        UserError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise UserError(INSTALL) from error
    return ray


def look(address: str) -> Cluster:
    """Ask the head of a cluster who it is.

    Args:
        address: `host:port`.

    Raises:
        UserError: it cannot be joined from here; one line that says why and what to do.
    """
    ray = imported_ray()
    _knock(address)
    core, messages, services, usage, utils = _inner()
    loader = core.AuthenticationTokenLoader.instance()
    loader.reset_cache()
    if os.environ["RAY_AUTH_MODE"] == "token" and not loader.has_token(ignore_auth_mode=True):
        raise UserError(f"no token for the Ray cluster at {address}: put that of its head into "
                        f"{TOKEN}")
    try:
        with _silence():
            client = core.GcsClient(address=address)
            theirs = usage.get_cluster_metadata(client)
            alive = messages.GcsNodeInfo.GcsNodeState.ALIVE
            found = client.get_all_node_info(timeout=ANSWER_S, state_filter=alive)
        if theirs:
            check_versions(address, theirs, utils.check_version_info)
    except ray.exceptions.AuthenticationError as error:
        raise UserError(f"the Ray cluster at {address} refuses the token: put that of its head "
                        f"into {TOKEN}") from error
    except (ray.exceptions.RayError, RuntimeError, OSError, ValueError) as error:
        raise UserError(f"no Ray cluster at {address}: {in_a_line(error)}") from error
    nodes = frozenset(each.hex() for each in found)
    return Cluster(client.cluster_id.hex(), nodes, nodes & frozenset(services.find_node_ids()))


def check_versions(
    address: str, theirs: dict[str, Any], check: Callable[[dict[str, Any], str], None]
) -> None:
    """Check that Ray and Python are those of the cluster, as far as Ray asks for it.

    Args:
        address: of the cluster.
        theirs: `ray_version` and `python_version`.
        check: Ray's own; raises RuntimeError.

    Raises:
        UserError: they are not.
    """
    try:
        check(theirs, "this machine")
    except RuntimeError as error:
        raise UserError(
            f"the cluster at {address} has Ray {theirs['ray_version']} and Python "
            f"{theirs['python_version']}, this machine Ray {metadata.version('ray')} and Python "
            f"{platform.python_version()}: install the same of both on every machine"
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Ray's core from writing to stderr what it raises as well."""
    kept = os.dup(STDERR)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), STDERR)
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def _inner() -> tuple[Any, ...]:
    """The parts of Ray that are not its public interface; they are not typed."""
    return tuple(import_module(f"ray.{name}") for name in (
        "_raylet", "core.generated.gcs_pb2", "_private.services", "_common.usage.usage_lib",
        "_private.utils",
    ))


def in_a_line(error: BaseException) -> str:
    """What an error says, shortened to a line."""
    words = " ".join(str(error).split())
    return words[:LONGEST_REASON] or type(error).__name__


def _knock(address: str) -> None:
    """Raises UserError unless somebody there speaks as Ray does."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"cluster.address: {address!r} is not HOST:PORT")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_S) as server:
            server.sendall(HTTP2_PREFACE)
            answer = server.recv(FRAME_TYPE + 1)
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster at {address}: {in_a_line(error)}") from error
    if answer[FRAME_TYPE:] != bytes((SETTINGS,)):
        raise UserError(f"no Ray cluster at {address}: who answers there is not the head of one")
