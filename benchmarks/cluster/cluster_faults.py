"""Faults of a cluster: what acting notices, when learning goes on, and what is counted twice.

First part: two daemons run side by side; one learns in a Ray cluster, the other in its own learner.
The cluster, which is a machine of its own where the kernel permits one (`far_machine.py`), is hurt
in one way after the other. The table shows the inaction of both daemons meanwhile, when the status
said that the link is cut and what it said, and the longest pause of learning. Second part: several
daemons feed one learner; one daemon is killed, and another is started. The last lines show how long
the shares of a batch took to follow, and how many transitions of the daemons that lived to the end
were sent, learned from and answered. Everything is seen from outside: over HTTP, and in what
`rtagent learner` prints.

    rtagent bench cluster_faults [--seconds 30] [--daemons 4] [--quick] [--json]
        [--only learner node]
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks.cluster.daemons import (
    BATCH,
    Cluster,
    daemon,
    evenly,
    gateway,
    learned,
    link,
    own_node,
    shares,
)
from benchmarks.cluster.far_machine import FarMachine, in_own_network
from benchmarks.cluster.ray_cluster import ENVIRON, program, send
from benchmarks.command import at_least, command_line
from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import in_session
from benchmarks.waiting import LIMIT_S, LOOK_EVERY_S, until
from rtagent.cli.output import plain_table, print_json, stdout
from rtagent.cluster.in_flight import MOST_IN_FLIGHT
from rtagent.cluster.ray_checks import HEAD_GONE_S
from rtagent.errors import UserError
from rtagent.processes.kernel_state import descendants

FOLLOW_S = 5.0
"""Longest time that the shares of a batch may take to follow."""
REPORTED_S = 1.0
"""Greatest age of the gateway's figures."""
TOLD_EVERY_S = 4.0
"""Within this time `rtagent learner` has reported everything."""
MORE_INACTION = 0.01
"""Greatest share of the ticks that may be inaction beyond that of the daemon without a cluster."""
HEAD_AWAY_S = 10.0
"""Less than the time after which Ray's processes give the head up."""
HEAD_LOST = "head killed until that is told"
LINKS = {
    "200 ms of delay": "cluster.emulated_rtt_ms=200",
    "1 % of messages lost, each way": "cluster.emulated_loss=0.01",
}
"""Links that are emulated: name -> setting."""


class Phase(NamedTuple):
    """What happened while the cluster was hurt in one way.

    Attributes:
        fault: name of the fault.
        inaction: of the daemon with the cluster, share of the ticks meanwhile.
        without: inaction of the daemon without a cluster, in the same time.
        cut_after_s: until the status said that the link is cut. If None, it never did.
        said: lines of the status while the link was cut, the first for each reason.
        pause_s: longest time without an update.
        in_flight: most batches that were on their way at once.
        doubled: transitions that were learned from more often than they were sent.
        applied_twice: transitions whose priorities came more often than they were sent.
        restarts: of the gateway.
    """

    fault: str
    inaction: float
    without: float
    cut_after_s: float | None
    said: tuple[str, ...]
    pause_s: float
    in_flight: int
    doubled: int
    applied_twice: int
    restarts: int


class Sharing(NamedTuple):
    """What several daemons saw of one learner.

    Attributes:
        after_kill_s: from the kill until the others shared the whole batch.
        after_start_s: from the joining of a new one until all shared the batch evenly.
        sent: transitions that the daemons that lived to the end have sent.
        learned: how many of these the learner has learned from.
        answered: how many of these the learner has answered.
    """

    after_kill_s: float
    after_start_s: float
    sent: int
    learned: int
    answered: int


def faults(
    cluster: Cluster, joined: RunningDaemon, seconds: float
) -> dict[str, Callable[[], None]]:
    """The faults that are done to the cluster, by name."""

    def kill_gateway() -> None:
        send([gateway(joined)["pid"]], signal.SIGKILL)

    def kill_raylet() -> None:
        own = [pid for pid in in_session(gateway(joined)["pid"]) if program(pid) == "raylet"]
        assert own, "the gateway has started a node of its own"
        send(own, signal.SIGKILL)

    def stop_node() -> None:
        stopped = cluster.learner.processes()
        send(stopped, signal.SIGSTOP)
        time.sleep(seconds)
        send(stopped, signal.SIGCONT)

    def kill_node() -> None:
        cluster.learner.kill()
        cluster.learner.start()

    def kill_head() -> None:
        cluster.head.kill()
        time.sleep(min(seconds, HEAD_AWAY_S))
        cluster.head.start()

    def lose_head() -> None:
        cluster.head.kill()
        until(lambda: not link(joined)["connected"], "the loss of the head is noticed")
        cluster.head.start()

    def cut_link() -> None:
        assert cluster.machine is not None
        cluster.machine.cut()
        time.sleep(seconds)
        cluster.machine.mend()

    everywhere = {
        "none": lambda: None,
        "gateway killed": kill_gateway,
        "learner killed": lambda: send([cluster.learner.actor()], signal.SIGKILL),
        f"nobody answers for {seconds:.0f} s": stop_node,
        "learner's node killed": kill_node,
        "head killed, comes back": kill_head,
        HEAD_LOST: lose_head,
    }
    from_afar = {f"link cut for {seconds:.0f} s": cut_link, "gateway's raylet killed": kill_raylet}
    return everywhere if cluster.machine is None else everywhere | from_afar


def hurt(cluster: Cluster, seconds: float, only: Sequence[str]) -> Iterator[Phase]:
    """All phases with one of these words in their name, one after the other; all, without words.

    Raises:
        UserError: a word is in no name.
    """

    def wanted(name: str) -> bool:
        return not only or any(word in name for word in only)

    with daemon() as here:
        with cluster.daemon() as joined:
            until(lambda: learned(joined), "it learns")
            doable = faults(cluster, joined, seconds)
            check_words(only, [*doable, *LINKS])
            for name, fault in doable.items():
                if wanted(name):
                    yield phase(name, fault, cluster, joined, here, seconds)
        for name, setting in LINKS.items():
            if wanted(name):
                with cluster.daemon(setting) as joined:
                    until(partial(learned, joined), "it learns")
                    yield phase(name, lambda: None, cluster, joined, here, seconds)


def check_words(only: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a word that is in no name: of no phase all is well.

    Raises:
        UserError: there is one.
    """
    for word in only:
        if not any(word in name for name in names):
            raise UserError(f"--only {word}: in no phase; they are: {'; '.join(names)}")


def phase(
    name: str, fault: Callable[[], None], cluster: Cluster, joined: RunningDaemon,
    here: RunningDaemon, seconds: float,
) -> Phase:
    """Do something to the cluster, and watch until it is over and learning goes on."""
    before = [joined.stats()["actions"], here.stats()["actions"]]
    restarts = gateway(joined)["restarts"]
    doing = threading.Thread(target=fault, name=name)
    begun = grown_at = time.monotonic()
    doing.start()
    cut_after_s: float | None = None
    said: dict[str, str] = {}
    pause_s, in_flight, count, calm_since = 0.0, 0, -1, begun
    while True:
        stats, now = joined.stats(), time.monotonic()
        figures = stats["cluster"]
        in_flight = max(in_flight, figures["batches_in_flight"] or 0)
        pause_s = max(pause_s, now - grown_at)
        if not figures["connected"]:
            cut_after_s = now - begun if cut_after_s is None else cut_after_s
            said.setdefault(figures["reason"], stats["verdicts"]["cluster"]["detail"])
        if doing.is_alive() or not figures["connected"]:
            calm_since = now
        if stats["learning"]["updates"] != count:
            count, grown_at = stats["learning"]["updates"], now
            # It was connected all the time, or is again.
            if now - calm_since > 1.0 and now - begun > seconds:
                break
        if now - begun > seconds + LIMIT_S:
            raise TimeoutError(f"no learning after: {name}")
        time.sleep(LOOK_EVERY_S)
    doing.join()
    both = zip(before, (joined.stats(), here.stats()), strict=True)
    inaction, without = (_inaction(old, new["actions"]) for old, new in both)
    told = cluster.learned_of([joined])
    # The transitions that the learner has reported were sent earlier: they are in the gateway's
    # next report.
    time.sleep(REPORTED_S)
    own = own_node(joined)
    return Phase(
        name, inaction, without, cut_after_s, tuple(said.values()), pause_s, in_flight,
        max(0, told - own["shipped"]), max(0, own["learned"] - own["shipped"]),
        gateway(joined)["restarts"] - restarts,
    )


def share(cluster: Cluster, count: int, seconds: float) -> Sharing:
    """Have `count` daemons feed the learner, kill one of them, and start another."""
    with contextlib.ExitStack() as ends:
        daemons = [ends.enter_context(cluster.daemon()) for _ in range(count - 1)]
        with cluster.daemon() as other:
            until(lambda: evenly([*daemons, other]), "all share the batch")
            time.sleep(seconds)
            killed = time.monotonic()
            send([other.process.pid, *descendants(other.process.pid)], signal.SIGKILL)
            until(lambda: sum(shares(daemons)) == BATCH, "the others share the batch")
            after_kill_s = time.monotonic() - killed
        daemons.append(ends.enter_context(cluster.daemon()))
        joined = time.monotonic()
        until(lambda: evenly(daemons), "all share the batch again")
        after_start_s = time.monotonic() - joined
        time.sleep(seconds)
        for each in daemons:
            each.patch("/v1/config", learning={"paused": True})
        until(lambda: not any(link(each)["batches_in_flight"] for each in daemons),
              "no batch is on its way")
        time.sleep(TOLD_EVERY_S)
        return Sharing(
            after_kill_s, after_start_s, sum(int(own_node(each)["shipped"]) for each in daemons),
            cluster.learned_of(daemons), sum(map(learned, daemons)),
        )


def verdict(phases: list[Phase], sharing: Sharing) -> list[tuple[str, bool]]:
    """Each claim, and whether it holds."""
    follows = max(sharing.after_kill_s, sharing.after_start_s)
    lines = [line for each in phases for line in each.said]
    return [
        ("acting notices nothing",
         all(each.inaction <= each.without + MORE_INACTION for each in phases)),
        ("nothing is learned twice", not any(each.doubled for each in phases)),
        ("no priority is applied twice", not any(each.applied_twice for each in phases)),
        ("the backlog is bounded", all(each.in_flight <= MOST_IN_FLIGHT for each in phases)),
        ("a line says what is cut, and since when",
         all(re.fullmatch(r"cut for \d+ s: .+", line) for line in lines)),
        (f"shares follow within {FOLLOW_S:g} s", follows <= FOLLOW_S),
        ("no batch is lost or doubled", sharing.sent == sharing.learned == sharing.answered),
    ]


def _inaction(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Share of the ticks in between that executed the default action."""
    made = {name: after[name] - before[name] for name in ("agent", "reused", "default")}
    return float(made["default"] / max(1, sum(made.values())))


def main() -> int:
    """Parse the command line, measure, print."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase, at least")
    parser.add_argument("--daemons", type=at_least(2), default=4)
    parser.add_argument("--quick", action="store_true", help="8 s for each phase")
    parser.add_argument("--only", nargs="*", default=(), metavar="WORD",
                        help="only the phases with one of these words in their name")
    args = parser.parse_args()
    seconds = 8.0 if args.quick else args.seconds
    phases = []
    with contextlib.ExitStack() as ends:
        machine = ends.enter_context(FarMachine()) if in_own_network() else None
        if machine is None:
            print("this machine permits no network namespace: no link is cut, and no raylet of "
                  "the gateway is killed", file=sys.stderr)
        os.environ.update(ENVIRON)
        cluster = ends.enter_context(Cluster(machine))
        for each in hurt(cluster, seconds, args.only):
            print(each, file=sys.stderr, flush=True)
            phases.append(each)
    with Cluster() as cluster:
        sharing = share(cluster, args.daemons, seconds)
    claims = verdict(phases, sharing)
    if args.json:
        print_json({
            "phases": [each._asdict() for each in phases], "sharing": sharing._asdict(),
            "claims": claims,
        })
    else:
        show(phases, sharing, claims)
    return 0 if all(holds for _, holds in claims) else 1


def show(phases: list[Phase], sharing: Sharing, claims: list[tuple[str, bool]]) -> None:
    """Print the figures as a table, and the claims."""
    table = plain_table("fault", "inaction", "without a cluster", "told after", "longest pause",
                        "in flight", "learned, applied twice", "gateway restarted")
    for each in phases:
        told = "never" if each.cut_after_s is None else f"{each.cut_after_s:.1f} s"
        table.add_row(
            each.fault, f"{each.inaction:.2%}", f"{each.without:.2%}", told,
            f"{each.pause_s:.1f} s", str(each.in_flight),
            f"{each.doubled}, {each.applied_twice}", str(each.restarts),
        )
    stdout().print(table)
    for each in phases:
        for line in each.said:
            print(f"{each.fault}: {line}")
        if each.fault == HEAD_LOST and each.cut_after_s is not None:
            print(f"the death of the head was noticed after {each.cut_after_s:.1f} s (Ray's "
                  f"processes give it up after {HEAD_GONE_S} s here, after 60 s by default)")
    print(f"shares follow a killed daemon after {sharing.after_kill_s:.1f} s, a new one after "
          f"{sharing.after_start_s:.1f} s; {sharing.sent:,} transitions sent, {sharing.learned:,} "
          f"learned from, {sharing.answered:,} answered")
    for claim, holds in claims:
        print(f"{claim}: {'holds' if holds else 'MISSED'}")


if __name__ == "__main__":
    sys.exit(main())
