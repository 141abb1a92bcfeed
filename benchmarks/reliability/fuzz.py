"""Hostile messages and files against everything that reads them: crashes, stalls, memory.

    rtagent bench fuzz [--messages N] [--files N] [--seed S] [--first N]
        [--only NAME ...] [--json]

`simulator`: a `donkey-sim` gets random messages from four clients, while a fifth drives; the stall
is the fifth client's longest wait for a frame. `client`: the environment's connection gets random
lines; the stall is the longest excess of a poll over its time limit. The other targets read files;
the stall is the longest time for one file. The CPU time beside it is that of the reader alone, also
on a busy machine. A crash is any outcome but success and the refusal that the reader documents. An
example is named by seed, target and number; `--first` begins with that number.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.command import command_line, from_zero
from benchmarks.donkey.donkey_client import running_simulator
from benchmarks.process_figures import resident_bytes
from benchmarks.reliability import hostile
from benchmarks.reliability.fuzz_files import FILES, SHAPE, messages_of
from benchmarks.reliability.fuzz_target import Target, Watch
from rtagent.cli.output import print_json, progress_bar
from rtagent.clock import MonotonicClock
from rtagent.env.donkey.connection import Connection

LONGEST_STALL_S = 1.0
CLIENTS = 4
BATCH = 100
LOOK_S = 0.001

Advance = Callable[[int], None]


@dataclass
class Result:
    """The outcome of a target.

    Attributes:
        tried: examples.
        refused: files that the reader refused.
        crashes: other exceptions, and processes that ended.
        longest_stall_s: of another client, or of the reader.
        longest_cpu_s: of the reader's thread; 0 where the reader is another process.
        memory_growth_mib: since the first tenth of the run.
    """

    tried: int = 0
    refused: int = 0
    crashes: int = 0
    longest_stall_s: float = 0.0
    longest_cpu_s: float = 0.0
    memory_growth_mib: float = 0.0


def files(target: Target, first: int, count: int, seed: int, advance: Advance) -> Result:
    """Read `count` examples, from the number `first` on."""
    result, watch, before = Result(), Watch(), 0
    with tempfile.TemporaryDirectory(prefix="rtagent-fuzz-") as folder, target.open(
        Path(folder)
    ) as (make, use):
        for start in range(first, first + count, target.at_once):
            numbers = range(start, min(start + target.at_once, first + count))
            examples = [make(Random(f"{seed}/{target.name}/{number}")) for number in numbers]
            for number, answer in zip(numbers, use(examples, watch), strict=True):
                if isinstance(answer, target.refusal):
                    result.refused += 1
                elif answer:
                    result.crashes += 1
                    told = "".join(traceback.format_exception(answer))
                    print(f"{target.name} {number}:\n{told}", file=sys.stderr)
            result.tried += len(numbers)
            if not before and result.tried >= count // 10:
                before = resident_bytes(os.getpid())
            advance(len(numbers))
    result.longest_stall_s, result.longest_cpu_s = watch.longest
    result.memory_growth_mib = max(resident_bytes(os.getpid()) - before, 0) / 2**20
    return result


def client(first: int, count: int, seed: int, advance: Advance) -> Result:
    """Send random lines to the environment's end of the connection."""
    result, clock, before = Result(), MonotonicClock(), 0
    make = messages_of(hostile.to_client, seed, "client", first)
    peer, pending = None, b""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        listener.setblocking(False)
        connection = Connection(
            lambda: [(socket.AF_UNIX, listener.getsockname())], clock, scene="warren",
            shape=SHAPE, chance=Random(seed),
        )
        while result.tried < count:
            try:
                if peer is None:
                    peer, pending = listener.accept()[0], b'{"msg_type":"car_loaded"}\n'
                    peer.setblocking(False)
                if not pending:
                    pending = b"".join(next(make) for _ in range(BATCH))
                    result.tried += BATCH
                    advance(BATCH)
                pending = pending[peer.send(pending) :]
                peer.recv(1 << 16)
            except BlockingIOError:
                pass
            except OSError:
                if peer is not None:
                    peer.close()
                peer = None
            began, worked = clock.now(), time.thread_time()
            try:
                connection.poll(began + LOOK_S, enough=lambda: False)
                while connection.waiting:
                    connection.take()
            except Exception:
                result.crashes += 1
                print(f"client {result.tried}:\n{traceback.format_exc()}", file=sys.stderr)
            result.longest_stall_s = max(result.longest_stall_s, clock.now() - began - LOOK_S)
            result.longest_cpu_s = max(result.longest_cpu_s, time.thread_time() - worked)
            if not before and result.tried >= count // 10:
                before = resident_bytes(os.getpid())
        connection.close()
        if peer is not None:
            peer.close()
    result.memory_growth_mib = max(resident_bytes(os.getpid()) - before, 0) / 2**20
    return result


def simulator(first: int, count: int, seed: int, advance: Advance) -> Result:
    """Send random messages of some clients to a simulator, while another client drives."""
    result, before = Result(), 0
    make = messages_of(hostile.to_simulator, seed, "simulator", first)
    with running_simulator() as (process, port), contextlib.ExitStack() as stack:
        witness = stack.enter_context(contextlib.closing(Witness(port)))
        rude = [stack.enter_context(contextlib.closing(Rude(port))) for _ in range(CLIENTS)]
        try:
            while result.tried < count:
                for each in rude:
                    if not each.pending:
                        each.pending = b"".join(next(make) for _ in range(BATCH))
                        result.tried += BATCH
                        advance(BATCH)
                    each.exchange()
                witness.look()
                if not before and result.tried >= count // 10:
                    before = resident_bytes(process.pid)
            result.memory_growth_mib = max(resident_bytes(process.pid) - before, 0) / 2**20
        except ConnectionError as error:
            result.crashes = 1
            print(f"simulator {result.tried}: {error}", file=sys.stderr)
        result.longest_stall_s = witness.longest
    return result


class Rude:
    """A client that sends what it is given, and connects again when it is disconnected."""

    def __init__(self, port: int) -> None:
        self._port, self.pending = port, b""
        self._connect()

    def _connect(self) -> None:
        self._sock = socket.create_connection(("127.0.0.1", self._port))
        self._sock.sendall(b'{"msg_type":"load_scene","scene_name":"generated_track"}')
        self._sock.setblocking(False)

    def exchange(self) -> None:
        """Send and receive as much as possible without waiting.

        Raises:
            ConnectionError: nobody listens any more.
        """
        try:
            while self._sock.recv(1 << 20):
                pass
            raise ConnectionError
        except BlockingIOError:
            pass
        except OSError:
            self.pending = b""
            self._sock.close()
            self._connect()
        with contextlib.suppress(OSError):
            self.pending = self.pending[self._sock.send(self.pending) :]

    def close(self) -> None:
        """Disconnect."""
        self._sock.close()


class Witness:
    """A client that drives, and measures how long it waits.

    Attributes:
        longest: most seconds between two arrivals of telemetry.
    """

    def __init__(self, port: int) -> None:
        self._clock, self.longest = MonotonicClock(), 0.0
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.sendall(b'{"msg_type":"load_scene","scene_name":"warren"}')
        while b"telemetry" not in (data := self._sock.recv(1 << 16)):
            if not data:
                raise ConnectionError("the simulator has disconnected its first client")
        self._heard = self._clock.now()
        self._sock.setblocking(False)

    def look(self) -> None:
        """Receive what has come, and answer with a control message.

        Raises:
            ConnectionError: it was disconnected.
        """
        try:
            data = self._sock.recv(1 << 20)
        except BlockingIOError:
            # Silence counts while it lasts.
            self.longest = max(self.longest, self._clock.now() - self._heard)
            return
        if not data:
            raise ConnectionError("a client that behaves was disconnected")
        self.longest = max(self.longest, self._clock.now() - self._heard)
        self._heard = self._clock.now()
        with contextlib.suppress(OSError):
            self._sock.send(b'{"msg_type":"control","steering":"0","throttle":"0.1","brake":"0"}')

    def close(self) -> None:
        """Disconnect."""
        self._sock.close()


def main() -> int:
    """Run the targets; exit code 1 if a reader crashes or stalls."""
    names = ["simulator", "client", *FILES]
    parser = command_line(__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="in each direction (20000)")
    parser.add_argument("--files", type=int, default=2_000, help="of each kind (2000)")
    parser.add_argument("--seed", type=from_zero, default=0)
    parser.add_argument("--first", type=from_zero, default=0, help="number of the first example")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args()
    results: dict[str, Result] = {}
    with progress_bar() as progress:
        for name in options.only:
            count = options.files if name in FILES else options.messages
            task = progress.add_task(name, total=count)
            advance = partial(progress.advance, task)
            if name in FILES:
                result = files(FILES[name], options.first, count, options.seed, advance)
            else:
                run = simulator if name == "simulator" else client
                result = run(options.first, count, options.seed, advance)
            results[name] = result
            if not options.json:
                print(_shown(name, result), flush=True)
    if options.json:
        print_json({"seed": options.seed, **{n: asdict(r) for n, r in results.items()}})
    failed = any(r.crashes or r.longest_stall_s > LONGEST_STALL_S for r in results.values())
    return int(failed)


def _shown(name: str, result: Result) -> str:
    return (
        f"{name:14} {result.tried:>9} tried {result.refused:>9} refused {result.crashes:>4} crashes"
        f"  longest stall {result.longest_stall_s * 1e3:6.0f} ms"
        + (f" (processor {result.longest_cpu_s * 1e3:.0f} ms)" if result.longest_cpu_s else "")
        + f"  memory +{result.memory_growth_mib:.0f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
