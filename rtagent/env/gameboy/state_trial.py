"""Users' save states are first loaded in a throw-away process.

An emulator trusts what it loads: a state that is damaged, or another program's, may end it with a
segmentation fault, or keep it busy for ever.

Why it is correct. The process is a fork of this one, with the same machine in it, so nothing has to
be started or loaded. It calls only the emulator, takes no lock that another thread of this process
may have held, and ends without cleaning up. Whatever happens to it happens to its copy of the
memory. The kernel ends it when it has used too much processor time, as an emulator does that hangs,
but not one that waits for the processor of a busy machine. Another timer ends a process that
sleeps.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from rtagent.env.gameboy.machine import Machine, Snapshot
from rtagent.errors import UserError

FRAMES = 60
"""Frames run after each state: most harmful states crash when loaded, the others soon after."""
LONGEST_S = 5.0
"""Most processor time for each state."""
PATIENCE = 10
"""Most time on the clock, as a multiple of `LONGEST_S`."""

_FATAL = (
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGALRM,
    signal.SIGPROF,
)

Play = Callable[[Machine, bytes], None]


def check_states(machine: Machine, states: Mapping[str, bytes]) -> None:
    """Check that states, by name, can be loaded and played on.

    States that the machine itself refuses pass: they do no harm. The running machine stays as it
    is.

    Raises:
        UserError: a state ends the emulator, or keeps it busy for ever.
    """
    names = list(states)
    for places, fault in harmful(machine, list(states.values())):
        shown = ", ".join(names[place] for place in places)
        if len(places) > 1:
            raise UserError(f"the starts {shown} end the emulator when loaded one by one")
        raise UserError(f"the start {shown} is damaged, or no state of this backend: {fault}")


def load_and_run(machine: Machine, state: bytes) -> None:
    """Load a state and run some frames, unless the machine refuses it."""
    try:
        machine.restore(Snapshot(state, machine.screen()))
    except ValueError:
        return
    for _ in range(FRAMES):
        machine.step()
    machine.snapshot()
    machine.screen()


def harmful(
    machine: Machine, states: Sequence[bytes], play: Play = load_and_run
) -> Iterator[tuple[Sequence[int], str]]:
    """Find the states that end a process which plays them.

    All are played in one process until it ends. Then the last state played, and each earlier one,
    which may have done damage that showed later, is played alone; if none of them ends its
    process, it takes all of them together.

    Args:
        machine: a running machine; it stays as it is.
        states: the states to play.
        play: what is done with each state; it must take no lock of this process.

    Yields:
        The harmful states' places in `states`, one or several that do harm together; the fault.
    """
    begin = 0
    while begin < len(states):
        last, fault = _tried(machine, states[begin:], play)
        if not fault:
            return
        last += begin
        for place in (last, *range(begin, last)):
            alone = _tried(machine, [states[place]], play)[1]
            if alone:
                yield [place], alone
                break
        else:
            yield range(begin, last + 1), fault
        begin = last + 1


def _tried(machine: Machine, states: Sequence[bytes], play: Play) -> tuple[int, str]:
    """The place of the state at which a process that plays these ends, and how; "" if it does not.
    """
    reached = mmap.mmap(-1, 8)
    with warnings.catch_warnings():
        # It warns of other threads; see the module's docstring.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _try(machine, states, play, reached)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    place = int.from_bytes(reached[:], "little")
    if code in (-signal.SIGALRM, -signal.SIGPROF):
        return place, "the emulator hangs"
    return place, "" if not code else "the emulator crashes"


def _try(machine: Machine, states: Sequence[bytes], play: Play, reached: mmap.mmap) -> None:
    """Run the throw-away process."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for each in _FATAL:
            signal.signal(each, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        for place, state in enumerate(states):
            reached[:] = place.to_bytes(8, "little")
            signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE * LONGEST_S)
            play(machine, state)
        os._exit(0)
    finally:
        os._exit(1)
