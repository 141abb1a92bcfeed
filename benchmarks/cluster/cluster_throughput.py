"""Updates of a learner behind a link, beside the same learner in the daemon and a plain Ray actor.

Frames of 84x84, stacks of four, the default network, a full prioritized replay. The real learner
process and the real gateway run on it, without acting beside them; the cluster's learner is an
actor of a real Ray on this machine. Every learner computes with one thread of torch. The plain side
is an actor with a list of rows, asked by one call for each batch: its rows are drawn uniformly, and
no priorities go back, so it has less to do.

The update alone is measured, too: on a CPU it takes most of the time, whatever brings the batches.
A learner that never waits for a batch can only save the time that the plain one spends beside its
updates; the greatest possible ratio is printed beside the measured one. So the lines "no update"
leave the update out: they say how fast batches come to a learner that needs no time.

Frames that the learner keeps (`cluster.cache_mb`) need not travel. `--cache-mb` sets the size of
this cache; rtagent's default holds all of this replay, 64 a seventh of it.

"busy" is the share of the time that a learner spent in updates: where it is as high as in the
daemon, the learner did not wait for batches. Other programs slow down the updates, but hardly
change this share.

Short blocks of all sides take turns, every other round in reverse; a ratio is the median of the
ratios of the rounds. All processes have the priority that the benchmark is started with. Without
arguments it takes about nine minutes. Exit code 1 if a ratio is less than wanted.

    rtagent bench cluster_throughput [--quick] [--rounds N] [--seconds S] [--sizes 32 512]
        [--cache-mb MB] [--only NAME ...] [--json]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from benchmarks.cluster.throughput_sides import (
    Alone,
    Block,
    Daemon,
    Plain,
    Side,
    cluster,
    settings,
    start_idle_learner,
)
from benchmarks.command import command_line
from rtagent.cli.output import plain_table, print_json, stderr, stdout
from rtagent.config import ClusterConfig

CAPACITY = 65_536
CACHE_MB = ClusterConfig().cache_mb
SIZES = (32, 512)
SETTLE_S = 2.0
LONG_SETTLE_S = 5.0
"""Behind a long link, whose rate and delay have to be measured first."""
SHORT_SETTLE_S = 1.0
"""Where nothing is measured first."""
DELAYS_MS = (0, 20, 200)
LEAST_OF_LOCAL = LEAST_OF_NO_DELAY = 0.9
LEAST_OF_PLAIN = 3.0
ALONE, LOCAL, CLUSTER = "update alone", "daemon", "cluster, {} ms"
PLAIN, NO_UPDATE = "plain Ray, {}", "{}, no update"
KINDS = ("uint8", "float32")


class Claim(NamedTuple):
    """A ratio that is wanted.

    Attributes:
        side, beside: whose rates are compared.
        least: wanted.
    """

    side: str
    beside: str
    least: float


def claims() -> list[Claim]:
    """The claims, which are made at every batch size."""
    near = CLUSTER.format(0)
    found = [Claim(near, LOCAL, LEAST_OF_LOCAL)]
    found += [Claim(CLUSTER.format(ms), near, LEAST_OF_NO_DELAY) for ms in DELAYS_MS[1:]]
    found += [Claim(near, PLAIN.format(kind), LEAST_OF_PLAIN) for kind in KINDS]
    found += [
        Claim(NO_UPDATE.format(near), NO_UPDATE.format(PLAIN.format(kind)), LEAST_OF_PLAIN)
        for kind in KINDS
    ]
    return found


@contextmanager
def sides(wanted: list[str], folder: Path, cache_mb: int = CACHE_MB) -> Iterator[dict[str, Side]]:
    """The wanted sides, ready to run, by name."""
    with ExitStack() as stack:
        address = f"cluster.address={stack.enter_context(cluster())}"
        remote = ["learning.where=cluster", address, f"cluster.cache_mb={cache_mb}"]
        config = settings(folder, CAPACITY)

        def near_and_far(ms: int) -> Daemon:
            link = [f"cluster.emulated_rtt_ms={ms}", f"cluster.name=learner-{ms}"]
            return Daemon(f"far-{ms}", settings(folder, CAPACITY, *remote, *link))

        def without_update() -> Daemon:
            start_idle_learner("idle")
            return Daemon("idle", settings(folder, CAPACITY, *remote, "cluster.name=idle"))

        makers: dict[str, Any] = {ALONE: lambda: Alone(config)}
        makers[LOCAL] = lambda: Daemon("here", config)
        for ms in DELAYS_MS:
            makers[CLUSTER.format(ms)] = lambda ms=ms: near_and_far(ms)
        makers[NO_UPDATE.format(CLUSTER.format(0))] = without_update
        for kind in KINDS:
            name = PLAIN.format(kind)
            makers[name] = lambda kind=kind: Plain(config, kind)
            makers[NO_UPDATE.format(name)] = lambda kind=kind: Plain(config, kind, learns=False)
        found = {}
        for name, make in makers.items():
            if name in wanted:
                found[name] = make()
                stack.callback(found[name].close)
        yield found


Rounds = dict[str, list[Block]]


def measure(
    wanted: list[str], sizes: list[int], rounds: int, seconds: float, cache_mb: int = CACHE_MB
) -> dict[int, Rounds]:
    """Blocks of every side, in turns, by batch size."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        found = ends.enter_context(sides(wanted, folder, cache_mb))
        orders = list(found), list(reversed(found))
        turns = [
            (size, name) for size in sizes for each in range(rounds) for name in orders[each % 2]
        ]
        blocks: dict[int, Rounds] = {size: {name: [] for name in found} for size in sizes}
        for size, name in track(turns, "measuring", console=stderr(), transient=True):
            blocks[size][name].append(found[name].run(size, settle_s(name), seconds))
        return blocks


def settle_s(side: str) -> float:
    """Seconds that a side learns before a block of it counts."""
    if side == ALONE or side.startswith(PLAIN.format("")):
        return SHORT_SETTLE_S
    return LONG_SETTLE_S if side == CLUSTER.format(DELAYS_MS[-1]) else SETTLE_S


def ratio(rounds: Rounds, side: str, beside: str) -> float | None:
    """How many times as fast a side is, median of the rounds; None if one was not measured."""
    pairs = list(zip(rounds.get(side, []), rounds.get(beside, []), strict=False))
    return statistics.median(a.batches / b.batches for a, b in pairs) if pairs else None


def most_possible(rounds: Rounds, beside: str) -> float | None:
    """How many times as fast as a plain side a learner that never waits for a batch would be.

    Args:
        rounds: blocks of every side.
        beside: the plain side.

    Returns:
        Median of its blocks; None if it is no plain side, or one without the update.
    """
    if beside not in map(PLAIN.format, KINDS):
        return None
    return statistics.median(1 / block.busy for block in rounds[beside])


def report(found: dict[int, Rounds]) -> dict[str, Any]:
    """Medians and ratios, as JSON can hold them."""
    rates = [
        {
            "batch_size": size, "side": name,
            "batches_per_s": statistics.median(block.batches for block in blocks),
            "samples_per_s": size * statistics.median(block.batches for block in blocks),
            "update_ms": 1e3 * statistics.median(block.update_s for block in blocks),
            "busy": statistics.median(block.busy for block in blocks),
            "of_update_alone": ratio(rounds, name, ALONE),
        }
        for size, rounds in found.items() for name, blocks in rounds.items()
    ]
    ratios = [
        {
            "batch_size": size, **claim._asdict(), "ratio": value, "holds": value >= claim.least,
            "most_possible": most_possible(rounds, claim.beside),
        }
        for size, rounds in found.items() for claim in claims()
        if (value := ratio(rounds, claim.side, claim.beside)) is not None
    ]
    return {"rates": rates, "claims": ratios}


def show(found: dict[str, Any]) -> None:
    """Print the report."""
    table = plain_table("B", "side", "batches/s", "samples/s", "update, ms", "busy", "of alone")
    for line in found["rates"]:
        share = line["of_update_alone"]
        table.add_row(
            f"{line['batch_size']}", line["side"], f"{line['batches_per_s']:.2f}",
            f"{line['samples_per_s']:,.0f}", f"{line['update_ms']:.1f}",
            f"{line['busy']:.0%}", "" if share is None else f"{share:.2f}",
        )
    stdout().print(table)
    for claim in found["claims"]:
        most = claim["most_possible"]
        print(
            f"B = {claim['batch_size']}: {claim['side']} / {claim['beside']} = "
            f"{claim['ratio']:.2f} (wanted {claim['least']:g}"
            f"{'' if most is None else f', at most {most:.2f} is possible'}): "
            f"{'holds' if claim['holds'] else 'MISSED'}"
        )


def main() -> int:
    """Parse the command line, measure, print."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a block")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--cache-mb", type=int, default=CACHE_MB, help="of frames at the learner")
    everybody = list(dict.fromkeys([ALONE, *(name for each in claims() for name in each[:2])]))
    parser.add_argument(
        "--only", nargs="+", choices=everybody, default=everybody, help="only these sides",
        metavar="NAME",
    )
    parser.add_argument("--quick", action="store_true", help="two rounds, blocks of two seconds")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 2, 2.0
    blocks = measure(args.only, args.sizes, args.rounds, args.seconds, args.cache_mb)
    found = report(blocks)
    print_json(found) if args.json else show(found)
    return 0 if all(claim["holds"] for claim in found["claims"]) else 1


if __name__ == "__main__":
    sys.exit(main())
