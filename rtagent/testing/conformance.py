"""Runs a trial in a child process, ends it when a call hangs, and judges what it found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from multiprocess import Pipe
from multiprocess.connection import Connection
from multiprocess.reduction import ForkingPickler

from rtagent.config import EnvConfig
from rtagent.errors import UserError
from rtagent.processes.launch import module_command, signal_name
from rtagent.testing import verdicts
from rtagent.testing.findings import Findings, Job, MakeEnv
from rtagent.testing.report import Check, Report

START_S = 60.0
"""How long the child may take to import what it needs."""
LONGEST_S = 3600.0
HIGHEST_HZ = 1000.0
LONGEST_LINE = 1000
"""Bytes of a process's last line that are shown."""


def check_realtime(
    make_env: MakeEnv, *, rate_hz: float | None = None, kwargs: Mapping[str, Any] | None = None,
    seconds: float = 5.0, seed: int = 0, step_limit_s: float = EnvConfig().step_limit_s,
    reset_limit_s: float = EnvConfig().reset_limit_s,
    settings: Mapping[str, Any] | None = None, progress: Callable[[str], object] = str,
) -> Report:
    """Check an environment for realtime use, where the world does not wait.

    It runs in a process of its own, which is ended afterwards, whatever it does.

    Args:
        make_env: a registered Gymnasium id, `package.module:EnvId-v0`, or a callable that makes
            the environment, which the child process must be able to import.
        rate_hz: ticks per second, up to 1000. If None, the environment's own.
        kwargs: passed on to the constructor, or to the callable.
        seconds: how long it is stepped on the wall clock.
        seed: of actions and episodes.
        step_limit_s, reset_limit_s: as `env.step_limit_s` and `env.reset_limit_s` of the run.
        settings: other settings of the section `env`, such as `{"observation_key": "front"}`.
        progress: called with the name of each call to the environment.

    Returns:
        The report; faults of the environment raise nothing here.

    Raises:
        UserError: an argument is illegal.
    """
    if rate_hz is not None and not 0.0 < rate_hz <= HIGHEST_HZ:
        raise UserError(f"rate_hz = {rate_hz:g}: must be above 0, at most {HIGHEST_HZ:g}")
    if not 0.0 < seconds <= LONGEST_S:
        raise UserError(f"seconds = {seconds:g}: must be above 0, at most {LONGEST_S:g}")
    job = Job(
        make_env, dict(kwargs or {}), rate_hz, seconds, seed, step_limit_s, reset_limit_s,
        dict(settings or {}),
    )
    pickling = Check("pickling", *_pickling(job))
    outcome = Outcome(Findings())
    if pickling.verdict != "fail":
        outcome = _try_out(job, progress)
    usable, errors, *others = verdicts.judge(outcome.found)
    checks = (pickling, usable, Check("hang", *_hang(outcome)), errors, *others)
    return Report(job.name, outcome.found.rate_hz, checks)


@dataclass
class Outcome:
    """What a trial found; if so, which call did not return, or in which call it died."""

    found: Findings
    hung: str | None = None
    died_in: str | None = None


def _pickling(job: Job) -> verdicts.Judged:
    named = isinstance(job.make_env, str)
    try:
        ForkingPickler.dumps(job)
    except Exception as error:
        what = "id and kwargs" if named else "the callable"
        return (
            "fail", f"{what} cannot be sent to another process: {error}",
            "name things by strings and numbers, and make the rest in the constructor",
        )
    if not named:
        return "ok", "the callable can be sent; a configuration needs an id besides"
    try:
        json.dumps(dict(job.kwargs), allow_nan=False)
    except (TypeError, ValueError) as error:
        told = f"kwargs cannot be written into a configuration file: {error}"
        return "warn", told, "take strings, numbers, lists and tables"
    return "ok", "id and kwargs can be sent"


def _hang(outcome: Outcome) -> verdicts.Judged:
    if outcome.hung is not None:
        advice = "the daemon would end the process and start it anew; wait with a time limit"
        return "fail", outcome.hung, advice
    if outcome.found.rate_hz is None:
        return "skip", verdicts.NOT_REACHED
    return "ok", "every call came back"


def _try_out(job: Job, progress: Callable[[str], object]) -> Outcome:
    ours, theirs = Pipe()
    command, variables = module_command("rtagent.testing.trial")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(os.getpid())],
            pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            # A group of its own, so that the processes that it started end with it.
            start_new_session=True, env=variables,
        )
        theirs.close()
        try:
            outcome = _listen(ours, job, progress)
        finally:
            # It has not been waited for, so the pid is still its own; if it has died already, it
            # keeps its exit code.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ours.close()
        if outcome.died_in is not None:
            outcome.found.error = (
                f"the process died in {outcome.died_in} {last_words(process.returncode, output)}"
            )
        return outcome


def _listen(pipe: Connection, job: Job, progress: Callable[[str], object]) -> Outcome:
    """Receive the reports of the trial until it ends."""
    found, call, limit_s = Findings(), "importing", START_S
    try:
        pipe.send(job)
        while pipe.poll(limit_s):
            call, limit_s, news = pipe.recv()
            found = news or found
            if not call:
                return Outcome(found)
            progress(call)
    except (EOFError, OSError):
        return Outcome(found, died_in=call)
    return Outcome(found, f"{call} did not come back within {limit_s:.3g} s")


def last_words(code: int, output: IO[bytes]) -> str:
    """How a process ended, and the last line of what it has printed."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - LONGEST_LINE))
    lines = output.read().decode(errors="replace").strip().splitlines()
    reason = signal_name(-code) if code < 0 else f"exit code {code}"
    last = f": {lines[-1].strip()}" if lines else ""
    return f"({reason}){last}"
