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

import os
import resource
import signal
import warnings
from collections.abc import Mapping, Sequence

from rtagent.env.gameboy.machine import Machine, Snapshot
from rtagent.errors import UserError

FRAMES = 60
"""Run after each state: most that crash do so when they are loaded, the others soon after."""
LONGEST_S = 5.0
"""Of the processor's time."""
LONGEST_EACH_S = 0.5
"""Beyond `LONGEST_S`, for each state."""
PATIENCE = 10
"""Times as long may pass on the clock."""

_FATAL = (
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGALRM,
    signal.SIGPROF,
)


def check_states(machine: Machine, states: Mapping[str, bytes]) -> None:
    """See that states can be loaded and played on.

    A state that the machine itself refuses is none of those meant here: it harms nobody. The
    machine, which is a running one, stays as it is.

    Raises:
        UserError: one of them ends the emulator, or keeps it busy for ever.
    """
    if not states or not _tried(machine, list(states.values())):
        return
    for name, state in states.items():
        fault = _tried(machine, [state])
        if fault:
            raise UserError(f"the start {name} is damaged, or no state of this backend: {fault}")
    raise UserError(f"the starts {', '.join(states)} end the emulator when loaded one by one")


def _tried(machine: Machine, states: Sequence[bytes]) -> str:
    """What happens to a process that loads these states; empty if nothing does."""
    with warnings.catch_warnings():
        # Other threads may be running; see above.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _try(machine, states)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if code in (-signal.SIGALRM, -signal.SIGPROF):
        return "the emulator hangs"
    return "" if not code else "the emulator crashes"


def _try(machine: Machine, states: Sequence[bytes]) -> None:
    """The throw-away process."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for each in _FATAL:
            signal.signal(each, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        longest_s = LONGEST_S + LONGEST_EACH_S * len(states)
        signal.setitimer(signal.ITIMER_PROF, longest_s)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * longest_s)
        picture = machine.screen()
        for state in states:
            try:
                machine.restore(Snapshot(state, picture))
            except ValueError:
                continue
            for _ in range(FRAMES):
                machine.step()
            machine.snapshot()
            machine.screen()
        os._exit(0)
    finally:
        os._exit(1)
