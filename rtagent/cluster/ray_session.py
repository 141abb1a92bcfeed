"""Joins a Ray cluster, or starts one on this machine, and finds the learner in it.

Ray is imported when it is needed first. Every process of a local Ray, or of a node that was started
here, is a descendant of the process that joined and ends with it, and so do Ray's files
(`remains.py`). A local Ray asks for a token: that of the environment, or else a random one that its
own processes alone know.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from rtagent.cluster.calls import EndedError, Remote
from rtagent.cluster.ray_checks import (
    LostError,
    NotStartedError,
    check_token,
    find_cluster,
    find_joined,
    imported_ray,
    in_a_line,
)
from rtagent.cluster.remains import end_descendants_with_this_process
from rtagent.errors import UserError, reason_of
from rtagent.processes.launch import module_command, module_path

NAMESPACE = "rtagent"
RESOURCE = "learner"
CALLS_AT_ONCE = 1000
OBJECT_STORE_BYTES = 256 << 20
STATUS_S, FIRST_STATUS_S = 10.0, 120.0
"""How long the learner may take to answer; longer at first, since it has much to load."""
CHECK_EVERY_S = 2.0
"""Time between two checks, while the learner is waited for, that the cluster is still there."""
NODE_S, LOOK_EVERY_S = 120.0, 0.5
"""How long a node of a cluster may take to start; time between two checks whether it has."""
LOOPBACK = "127.0.0.1"


def connect(
    address: str | None, resources: dict[str, float] | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> None:
    """Join a cluster. A process can join it only by a node on its own machine: if none runs here,
    one is started.

    Args:
        address: `host:port` of the cluster's head. If None, a Ray of this machine alone is started.
        resources: that this machine adds to the cluster. With an address, a node is started here
            for them; a Ray of this machine alone has one `learner` by default.
        waiting: called now and then while a node is being started.

    Raises:
        LostError: the cluster was lost after a node of this machine had joined it.
        UserError: Ray is not installed, or the cluster cannot be joined; one line that says what to
            do.
    """
    ray = imported_ray()
    if ray.is_initialized():
        return
    if address is not None:
        _ensure_node(address, resources or {}, waiting)
    handlers = _signal_handlers()
    options: dict[str, Any] = {
        "namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR",
        "job_config": _job(),
    }
    try:
        if address is None:
            _set_local_token()
            os.environ["PYTHONPATH"] = module_path()
            check_token("a Ray of this machine alone")
            folder = end_descendants_with_this_process()
            ray.init(
                "local", _temp_dir=str(folder), num_cpus=1, resources=resources or {RESOURCE: 1.0},
                include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES,
                _node_ip_address=LOOPBACK, **options,
            )
        else:
            ray.init(address=address, **_join_options(address), **options)
    except UserError:
        raise
    except Exception as error:
        # Of any type: where a node takes too long to start, Ray raises a bare Exception.
        with contextlib.suppress(Exception):
            ray.shutdown()
        # This machine's node has joined: what answered a moment ago may come back.
        kind = UserError if address is None else LostError
        raise kind(_join_failure(error, address)) from error
    finally:
        # Ray has replaced them by its own.
        for number, handler in handlers.items():
            signal.signal(number, handler)


def head() -> str:
    """Address `host:port` of the head of the cluster that was joined."""
    return str(imported_ray().get_runtime_context().gcs_address)


def has_named_token() -> bool:
    """Whether the environment names a token. `connect` sets one for a Ray of this machine alone if
    it names none."""
    return any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))


def disconnect() -> None:
    """Leave the cluster; a Ray of this machine alone ends."""
    if (ray := sys.modules.get("ray")) is not None:
        ray.shutdown()


class Watch:
    """Checks that the cluster and the node by which this process has joined still exist.

    Created after `connect`.
    """

    def __init__(self) -> None:
        context = imported_ray().get_runtime_context()
        self._address, self._node = context.gcs_address, context.get_node_id()

    def check(self) -> None:
        """Ask the cluster; returns at once if all is well.

        Raises:
            LostError: the cluster or the node is gone.
        """
        if self._node not in find_joined(self._address):
            raise LostError(f"this machine's node of the cluster at {self._address} is gone")


class LearnerHandle(Remote):
    """Calls the learner, wherever it runs.

    Args:
        actor: Ray's handle of the learner.

    Attributes:
        watch: checks that the learner's cluster can still be reached.
    """

    def __init__(self, actor: Any) -> None:
        self._ray = imported_ray()
        self._actor = actor
        self._open: list[Any] = []
        self._done: list[Any] = []
        self._failed: list[tuple[Hashable, Any]] = []
        self.watch = Watch()
        self._patience_s = FIRST_STATUS_S

    def begin(self, method: str, *arguments: Any) -> Hashable:
        """Begin a call, see `Remote`."""
        try:
            reference: Hashable = getattr(self._actor, method).remote(*arguments)
        except Exception as error:
            # For example, this machine's node is gone.
            reference = object()
            self._failed.append((reference, error))
        else:
            self._open.append(reference)
        return reference

    def finished(self) -> list[tuple[Hashable, Any]]:
        """The calls that have ended, see `Remote`."""
        failed, self._failed = self._failed, []
        done, self._done = self._done, []
        return failed + [(reference, self._result(reference)) for reference in done]

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of a call, see `Remote`."""
        if not self._open:
            time.sleep(timeout_s)
            return
        self._ray.wait(self._open, num_returns=1, timeout=timeout_s)
        done, self._open = self._ray.wait(self._open, num_returns=len(self._open), timeout=0.0)
        self._done += done

    def status(self) -> dict[str, Any]:
        """The learner's status, see `ClusterLearner.status`.

        Raises:
            NotStartedError: the learner could not start.
            LostError: the learner was ended; or the cluster or this machine's node of it is gone.
                The learner may still answer then, but Ray ends this process when it has been
                without the head of the cluster for `HEAD_GONE_S`.
            UserError: the learner does not answer.
        """
        end, errors, asked = time.monotonic() + self._patience_s, self._ray.exceptions, None
        while True:
            self.watch.check()
            try:
                asked = asked or self._actor.status.remote()
                left = min(CHECK_EVERY_S, end - time.monotonic())
                found: dict[str, Any] = self._ray.get(asked, timeout=max(0.0, left))
            except errors.ActorDiedError as error:
                kind = NotStartedError if error.actor_init_failed else LostError
                raise kind(_end(error)) from error
            except errors.RayError as error:
                # A call to an actor that is being started again fails at once.
                starting = isinstance(error, errors.RayActorError)
                goes_on = starting or isinstance(error, errors.GetTimeoutError)
                if not goes_on or time.monotonic() >= end:
                    raise UserError(f"the learner does not answer: {in_a_line(error)}") from error
                if starting:
                    asked = None
                    time.sleep(LOOK_EVERY_S)
            else:
                self._patience_s = STATUS_S
                return found

    def _result(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.ActorDiedError as error:
            return EndedError(_end(error))
        except self._ray.exceptions.RayActorError:
            return ConnectionError("the learner died, or cannot be reached; Ray starts it again")
        except Exception as error:
            # Ray wraps what the learner has raised into an error with a traceback.
            return getattr(error, "cause", None) or error


def find_learner(name: str, folder: Path | None) -> LearnerHandle:
    """The cluster's learner with this name; it is started if it does not exist.

    Args:
        folder: where it writes its checkpoints, on the machine that it runs on, if it is started
            now. If None, it writes none, unless its node names a folder (`held_folder.py`).

    Raises:
        LostError: the cluster is gone.
        UserError: no node of the cluster has the resource `learner`, or another learner has it.
    """
    ray = imported_ray()
    from rtagent.cluster.ray_learner import LearnerActor

    # The import may take seconds. If the head is lost meanwhile, Ray ends this process when it asks
    # for anything.
    Watch().check()
    if ray.cluster_resources().get(RESOURCE, 0.0) < 1.0:
        raise UserError(
            f"no node of the cluster has the resource {RESOURCE}: start one with "
            f"`rtagent learner --address ... --resources {RESOURCE}=1`"
        )
    # In this order: a daemon may start the learner in between.
    if ray.available_resources().get(RESOURCE, 0.0) < 1.0 and not _exists(name):
        raise UserError(
            f"another learner of the cluster takes its resource {RESOURCE}: name that one "
            f"(cluster.name), or start a further node with `rtagent learner --address ... "
            f"--resources {RESOURCE}=1`"
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


def _exists(name: str) -> bool:
    try:
        imported_ray().get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def _ensure_node(address: str, resources: dict[str, float], waiting: Callable[[], None]) -> None:
    """Start a node of the cluster on this machine, unless one runs that has these resources.

    A node that this process has started before may still run, if its cluster did not answer for a
    while only.

    Raises:
        UserError: the node does not start.
    """
    local = find_cluster(address).values()
    if local and not resources:
        return
    try:
        folder = str(end_descendants_with_this_process())
        if folder not in {each.folder for each in local}:
            _start_node(address, resources, waiting)
    except OSError as error:
        # For example, the disk is full, or there are too many processes.
        raise UserError(f"no node can be started for {address}: {reason_of(error)}") from error


def _start_node(
    address: str, resources: dict[str, float], waiting: Callable[[], None]
) -> None:
    """Start a node of the cluster on this machine, which ends with this process.

    Raises:
        UserError: the node does not start.
    """
    # Each node has a folder of its own: to two that start at one moment in one folder, Ray gives
    # the same sockets, and one dies. Before 2.55 Ray ignored the folder of a node that joins.
    folder = end_descendants_with_this_process()
    python, environ = module_command("ray.scripts.scripts")
    command = [
        *python, "start", f"--address={address}",
        f"--resources={json.dumps(resources)}", "--disable-usage-stats", f"--temp-dir={folder}",
        # Ray would start an idle process for each processor; a learner asks for no processor.
        # The log monitor sends what Ray's processes print to those who ask for it: nobody does.
        "--num-cpus=0", "--include-log-monitor=false",
    ]
    if not resources:
        # This node only passes on calls.
        command += [f"--object-store-memory={OBJECT_STORE_BYTES}"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environ,
    ) as starting:
        end = time.monotonic() + NODE_S
        while True:
            try:
                output, _ = starting.communicate(timeout=LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                waiting()
            if time.monotonic() > end:
                starting.kill()
                raise UserError(
                    f"no node can be started for {address}: `ray start` has not ended in "
                    f"{NODE_S:.0f} s; does this machine have the time and the memory for one?"
                )
    if starting.returncode:
        said = [line.strip() for line in output.splitlines() if line.strip()]
        why = said[-1] if said else "for no reason that it tells"
        raise UserError(f"no node can be started for {address}: {why}")


def _join_options(address: str) -> dict[str, str]:
    """Option of `ray.init` that names the node of this machine by which a process joins.

    Ray itself would choose the node of the head, if that runs in a container of this machine; and
    it would take a loopback address for one of another network.
    """
    try:
        local = find_cluster(address).values()
    except UserError as error:
        raise LostError(str(error)) from error
    own = [each.address for each in local if not ipaddress.ip_address(each.address).is_loopback]
    return {"_node_ip_address": own[0]} if own else {}


def _job() -> Any:
    """The job of this process, which does not give its working directory to the learner: there Ray
    would look for modules in it before it looks for those that are installed."""
    job = imported_ray().job_config.JobConfig()
    # Ray leaves the directory out for the clients of its proxy.
    job._client_job = True
    return job


def _set_local_token() -> None:
    """Set a random token, unless the environment names one."""
    if not has_named_token():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _signal_handlers() -> dict[int, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}


def _end(error: Any) -> str:
    """Why there is no learner any more, in one line; Ray does not start it again."""
    last = str(error).strip().splitlines()[-1]
    if not error.actor_init_failed:
        return f"the learner has ended: {last}"
    # Ray passes on the traceback alone, whose last line is the exception.
    return last.removeprefix(f"{UserError.__module__}.{UserError.__name__}: ")


def _join_failure(error: BaseException, address: str | None) -> str:
    where = "a local Ray cannot be started" if address is None else f"no Ray cluster at {address}"
    return f"{where}: {in_a_line(error)}"
