"""Save states that users bring are loaded in a throw-away process first.

An emulator trusts what it loads: a state that is damaged, or another program's, may end it with a
segmentation fault, or keep it busy for ever.

Why it is correct. The process is a copy of this one, with the same machine in it, and so nothing
has to be started or loaded for it. It calls the emulator and nothing else, takes no lock that
another thread of this process may have held, and ends without cleaning up. Whatever it does, it
does to its own copy. The kernel ends it when it has used the processor for too long: an emulator
that hangs does, and one that has to wait for a processor of a busy machine does not. Another timer
ends whatever sleeps.
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
"""Run after each state: most that crash do so when they are loaded, the others soon after."""
LONGEST_S = 5.0
"""Of the processor's time, for each state."""
PATIENCE = 10
"""Times as long may pass on the clock."""

_FATAL = (
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGALRM,
    signal.SIGPROF,
)

Play = Callable[[Machine, bytes], None]


def check_states(machine: Machine, states: Mapping[str, bytes]) -> None:
    """See that states can be loaded and played on.

    A state that the machine itself refuses is none of those meant here: it harms nobody. The
    machine, which is a running one, stays as it is.

    Raises:
        UserError: one of them ends the emulator, or keeps it busy for ever.
    """
    names = list(states)
    for places, fault in harmful(machine, list(states.values())):
        said = ", ".join(names[place] for place in places)
        if len(places) > 1:
            raise UserError(f"the starts {said} end the emulator when loaded one by one")
        raise UserError(f"the start {said} is damaged, or no state of this backend: {fault}")


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
    """Those that end a process which plays them, and what happens to it.

    All are played in one process, until one ends it: that one, or an earlier one that did damage
    which shows later, does so by itself, too, or else those together.

    Args:
        machine: a running one; it stays as it is.
        states: what is played.
        play: what is done with each; it must take no lock of this process.

    Yields:
        Places in `states`, one or those that do it together; the fault.
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
    """The state at which a process ends that plays these, and how; empty if it does not."""
    reached = mmap.mmap(-1, 8)
    with warnings.catch_warnings():
        # Other threads may be running; see above.
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
    """The throw-away process."""
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
