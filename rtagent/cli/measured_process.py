"""Measures in a process like those of the daemon.

The fork server forks it, as it does workers, so that it has the same imports and one thread. And an
environment that crashes its process does not end the command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import multiprocess

from rtagent.cli.output import own_stdout, progress_bar
from rtagent.cli.stop_signal import interrupted_by_stop_signals
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.errors import LIMITS, UserError, place_of
from rtagent.memory.blueprint import Blueprint
from rtagent.processes import launch
from rtagent.processes.worker import start_life

PROGRESS_EVERY_S = 0.1
ENDING_S = 1.0
"""How long a process whose pipe is closed may take to end, and so to have an exit code."""
T = TypeVar("T")
OnProgress = Callable[[float], None]


def in_measured_process(
    config: Config, body: Callable[[Config, Blueprint, Any, OnProgress], T], argument: Any,
    title: str,
) -> T:
    """Call a function of a module in such a process, and show its progress.

    Args:
        config: of the run; its environment is opened to learn its shapes.
        body: called with the configuration, the shapes, the argument and a function that takes the
            fraction that is done.
        argument: picklable, like the result.
        title: of the bar that shows what is done.

    Raises:
        UserError: the run has no network of its own; or no process can be started; or the
            environment or the network cannot be built, fails, or ends its process; or what the body
            raises.
    """
    if not config.policy.learns:
        name = "pretrained" if config.policy.remote is None else "remote"
        raise UserError(
            f"policy.{name} = {getattr(config.policy, name)!r}: no network here is measured; "
            "inference.processes = 'auto' finds how many are needed while the daemon runs"
        )
    with (
        interrupted_by_stop_signals(), progress_bar() as progress, own_stdout(),
        launch.ForkServer() as fork_server,
    ):
        task = progress.add_task(title, total=1.0)
        ours, theirs = multiprocess.Pipe()
        process = fork_server.spawn(_run, config, body, argument, theirs)
        theirs.close()
        try:
            while True:
                kind, value = ours.recv()
                if kind == "failed":
                    raise UserError(value)
                if kind == "measured":
                    measured: T = value
                    return measured
                progress.update(task, completed=value)
        except EOFError:
            raise _ended(process, config.env.id) from None
        finally:
            # A simulator that the environment has started would outlive it.
            process.kill(whole_tree=True)
            process.join()
            process.close()
            ours.close()


def _ended(process: launch.Process, env_id: str) -> UserError:
    """Why a process has ended without an answer."""
    process.join(ENDING_S)
    if process.failure:
        return UserError(f"{process.failure}; {LIMITS}")
    return UserError(
        f"the environment or the network of env.id = {env_id!r} ended its process "
        f"({launch.exit_code(process.exitcode)}) while it was measured"
    )


def _run(config: Config, body: Callable[..., Any], argument: Any, pipe: Any) -> None:
    """Body of the measured process."""
    import torch

    from rtagent.evaluation.probe import probe_with_weights

    start_life("plan")
    torch.set_num_threads(1)
    clock = MonotonicClock()
    told = clock.now()

    def report(done: float) -> None:
        """Send the progress, but not more often than anybody can see."""
        nonlocal told
        if clock.now() - told > PROGRESS_EVERY_S:
            told = clock.now()
            pipe.send(("progress", done))

    try:
        pipe.send(("measured", body(config, probe_with_weights(config), argument, report)))
    except UserError as error:
        pipe.send(("failed", str(error)))
    except Exception as error:
        place = place_of(error)
        if not place:
            raise
        pipe.send(("failed", f"measuring failed: {type(error).__name__}: {error}{place}"))
