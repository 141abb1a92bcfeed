"""The command line: finds the command, and turns every error of the user into one line.

A command's module is imported when the command is chosen, so that `rtagent status` does not wait
for what `rtagent plan` needs. Each module has `add_arguments(parser)`, which declares the options,
and `run(args)`, which returns the exit code, or raises `UserError` for what the user can mend. The
parts of a command have its name before their own: `doctor_memory.py` belongs to `doctor.py`.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rtagent import __version__
from rtagent.errors import LIMITS, UserError, place_of
from rtagent.logs.printable import printable
from rtagent.processes.interrupts import EXIT_INTERRUPTED, raise_at_ctrl_c

EXIT_USER_ERROR = 2
EXIT_BROKEN_PIPE = 141
NO_HOME = "Could not determine home directory."
"""What pathlib says of a path such as `~nobody/runs`."""
NO_THREAD = "can't start new thread"
"""What Python says where the system refuses one."""
SCARCE = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The system refuses a process, a descriptor or memory."""


class Command(NamedTuple):
    """One command: a line of help, whether it runs processes or asks the kernel, and its module.

    The module is one of this package, by default that of the command's name.
    """

    help: str
    needs_linux: bool = False
    module: str | None = None


COMMANDS = {
    "serve": Command("run the daemon: world, agent, learner, dashboard", True),
    "train": Command("learn for a while, and draw the learning curve", True),
    "play": Command("watch a checkpoint's policy play, live", True),
    "evaluate": Command("how well a checkpoint's policy plays", True),
    "regret": Command("what delay and inaction cost a checkpoint's policy", True),
    "export": Command("a policy, or a run, for other programs", True),
    "status": Command("processes and figures of the running daemon"),
    "login": Command("print an address that opens the dashboard once"),
    "watch": Command("the running daemon, live in the terminal"),
    "rerun": Command("the running daemon as a Rerun stream", module="rerun_stream"),
    "set": Command("change a setting of the running daemon", module="set_value"),
    "events": Command("what happened in the run of the running daemon"),
    "policy-server": Command("serve a policy to daemons on other machines", True),
    "learner": Command("start or find the learner of a Ray cluster, and follow it", True),
    "plan": Command("measure the policy; how many processes it needs", True),
    "profile": Command("measure a learning step, layer by layer and by precision", True),
    "simulate": Command("staggering, or a whole run, in virtual time"),
    "bench": Command("list the benchmarks, or run one"),
    "experiment": Command("list the experiments, or run one and draw it", True),
    "doctor": Command("what this machine can do, and what to mend", True),
    "check-env": Command("whether an environment is fit for realtime use", True),
    "config": Command("show the effective configuration, or its schema"),
    "donkey-sim": Command("a DonkeyCar simulator to drive in"),
    "rom": Command("list, verify or import cartridges; record play; search a game's memory"),
}


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and what was probably meant; `--help` shows the usage."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("type", Path, _path)

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USER_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse, but an unknown option is reported before a missing one, by its command."""
        self._check_options(args or ())
        known, others = super().parse_known_args(args, namespace)
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return known, others

    def _check_options(self, arguments: Sequence[str]) -> None:
        passes_on = any(each.nargs in (argparse.PARSER, argparse.REMAINDER)
                        for each in self._get_positional_actions())
        options = list(self._option_string_actions)
        for argument in arguments:
            name = argument.partition("=")[0]
            if name == "--" or (passes_on and not name.startswith("-")):
                return
            if name.startswith("--") and not any(each.startswith(name) for each in options):
                self.error(f"no option {name}{_did_you_mean(name, options)}")


def _path(text: str) -> Path:
    """A path of the command line."""
    if not text:
        # As from a script's unset variable; it would mean the working directory.
        raise argparse.ArgumentTypeError("must name a file or a folder, and is empty")
    # The shell expands `--out ~/x`, but not `--out=~/x`.
    return Path(text).expanduser()


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code: 0, 2 for bad input, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        # A pipe that does not block has a text of Python's own.
        if error.errno in SCARCE and error.strerror == os.strerror(error.errno):
            return _refuse(f"{error.strerror}: {LIMITS}")
        if error.filename is not None:
            return _refuse(f"{_text(error.filename)}: {error.strerror}")
        if error.errno != errno.ENOSPC:
            return _refuse_or_raise(error)
        discard_stdout()
        return _refuse(f"cannot write: {error.strerror}")
    except RuntimeError as error:
        if str(error) == NO_THREAD:
            return _refuse(f"{error}: {LIMITS}")
        if str(error) != NO_HOME:
            return _refuse_or_raise(error)
        return _refuse(
            "a path begins with ~, as that of the usual state directory does, and there is no such "
            "home directory; set HOME, or name another path"
        )
    except Exception as error:
        return _refuse_or_raise(error)


def discard_stdout() -> None:
    """Let the interpreter, which flushes stdout once more when it ends, find a file to write to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_or_raise(error: Exception) -> int:
    """End with one line if the user's own code has raised; a defect of rtagent keeps its calls."""
    place = place_of(error)
    if not place:
        raise error
    return _refuse(f"{type(error).__name__}: {error}{place}")


def _refuse(why: str) -> int:
    # The exit code tells it, too, where stderr is on a full disk.
    with suppress(OSError):
        print(f"rtagent: {printable(' '.join(why.split()))}", file=sys.stderr)
    return EXIT_USER_ERROR


def _text(name: object) -> str:
    """A file name as text; a number is a descriptor."""
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)


def _run(arguments: Sequence[str]) -> int:
    name = next((item for item in arguments if not item.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        raise UserError(f"no command {name!r}{_did_you_mean(name, COMMANDS)} (see rtagent --help)")
    parsers, module = _parsers(name)
    args = parsers[""].parse_args(arguments)
    raise_at_ctrl_c()
    return int(module.run(args))


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, with all its options."""
    return _parsers(name)[0][name]


def _parsers(name: str | None) -> tuple[dict[str, argparse.ArgumentParser], Any]:
    """The whole parser, under "", that of each command, and the module of the named command.

    Only the parser of the named command has its options; the other modules are not loaded.
    """
    module: Any = None
    parser = Parser(prog="rtagent", description="Realtime reinforcement learning.")
    parser.add_argument("--version", action="version", version=f"rtagent {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    parsers: dict[str, argparse.ArgumentParser] = {"": parser}
    for each, command in COMMANDS.items():
        parsers[each] = subparsers.add_parser(each, help=command.help, description=command.help)
        if each == name:
            module = _load(each, command)
            module.add_arguments(parsers[each])
    return parsers, module


def _has_working_directory() -> bool:
    with suppress(FileNotFoundError):
        return bool(os.getcwd())
    return False


def _load(name: str, command: Command) -> Any:
    if command.needs_linux and not sys.platform.startswith("linux"):
        raise UserError(f"rtagent needs Linux (memfd, futex, SCHED_FIFO): this is {sys.platform}")
    if command.needs_linux and not _has_working_directory():
        raise UserError(
            "the working directory has been removed, and torch cannot be loaded from there; change "
            "to another one"
        )
    try:
        return importlib.import_module(f"{__name__}.{command.module or name.replace('-', '_')}")
    except OSError as error:
        # A library looks for a temporary directory as soon as it is imported.
        raise UserError(f"cannot start: {error.strerror}; make room, or set TMPDIR") from None
