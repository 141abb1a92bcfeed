"""The learner of a cluster: joins the buffer nodes' shares to batches, and learns from them.

Why it is correct. A node's messages are numbered within its session, which begins when the node
joins (`session.py`), so a node may repeat every message without an answer. Messages of an earlier
session are refused. A learner that was started again has another *incarnation* and knows no
session: every node joins anew.

One thread learns; calls come in other threads. Sessions, queues and answers are used under the
condition `_changed` alone. The trainer is changed under the lock `_training` alone, and begins
under both; a function that needs both takes `_training` first. A node may join anew or be forgotten
while its share is learned from: the answer is kept with the share, not with the name of the node.

A batch has a share of every node (`shares.py`). A node without a share, when the others have one,
is waited for once, for `PATIENCE_S`. Until two of its shares are there, it is not waited for again,
and a share of it is part of the next batch: a node that learns less often does not slow down the
others.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from rtagent.clock import Clock
from rtagent.cluster.calls import Outcome
from rtagent.cluster.joining import Joining, Welcome, check_same, check_version
from rtagent.cluster.message import Bytes, pack, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.received_shares import ReceivedShares, batch_of
from rtagent.cluster.session import Session, Share
from rtagent.cluster.shares import shares
from rtagent.cluster.trainer import Trainer, snapshot_arrays, snapshot_from
from rtagent.errors import UserError
from rtagent.learning.shared_update import Gradient
from rtagent.memory.array_buffer import Floats
from rtagent.storage.checkpoint import CheckpointError

PATIENCE_S = 0.25
"""How long a node's share is waited for when other nodes' shares are there."""
NO_ERRORS: Floats = np.empty(0, np.float32)
FORGOTTEN_S = 60.0
"""A node that has not called for so long is forgotten, and the memory of its frames is released. A
node whose replay is here would go on with that, so it is forgotten only if another has joined since
its last call, as a daemon does that was started again."""


class ClusterLearner:
    """A learner for several buffer nodes.

    Args:
        folder: where checkpoints are written. If None, none are written.
        identity: of this learner alone, and the same after it was started again: it then learns on
            from its newest checkpoint. If None, it is never started again.
        on_publish: called by the learning thread whenever weights are published.
    """

    def __init__(
        self, clock: Clock, folder: Path | None, identity: str | None = None,
        on_publish: Callable[[], None] = lambda: None,
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._clock = clock
        self._folder, self._identity = folder, identity or self.incarnation
        self._changed = threading.Condition()
        self._training = threading.Lock()
        self._nodes: dict[str, Session] = {}
        self._trainer: Trainer | None = None
        self._first: Joining | None = None
        # A learner that was started again must not know a session of its predecessor.
        self._sessions = secrets.randbits(48)
        self._joined_at = clock.now()
        self._batches = 0
        self._published_at = clock.now()
        self._waiting_since: float | None = None
        self._on_publish = on_publish
        self._saved_at = clock.now()
        self._saved_updates: int | None = None
        self._save_error: str | None = None

    # ---- what nodes ask for

    def join(self, joining: Joining) -> Welcome:
        """Begin a session for a node, in the place of its last one.

        Raises:
            UserError: the node has another version; or its network, observations or actions are not
                those of the other nodes; or its network cannot be built here.
        """
        check_version(joining)
        with self._training, self._changed:
            if self._first is None or self._trainer is None:
                self._trainer = _trainer_of(joining)
                self._first = joining
                if self._folder is not None and self._trainer.restore(self._folder, self._identity):
                    self._published_at = self._clock.now()
            check_same(joining, self._first)
            source = self._source(joining)
            source.generated = joining.generated
            before = self._nodes.get(joining.node)
            self._end_session(joining.node)
            self._joined_at = self._clock.now()
            self._forget_gone()
            self._sessions += 1
            learning = joining.config.learning
            session = self._nodes[joining.node] = Session(
                self._sessions, source, learning.batch_size, learning.learning_rate,
                self._joined_at,
            )
            # A gateway that was killed had sent more than the next one knows of.
            session.shipped = max(joining.shipped, before.shipped if before else 0)
            self._changed.notify_all()
            return Welcome(
                self._sessions, self._trainer.begun, self._share(joining.node), source.expected
            )

    def begin(self, block: Bytes) -> None:
        """Learn on from a node's state, unless there is a state already.

        Raises:
            UserError: no node has joined.
            MessageError: it is no state of this network.
        """
        with self._training, self._changed:
            if self._trainer is None:
                raise UserError("join first")
            if self._trainer.begun:
                return
            self._trainer.begin(snapshot_from(unpack(block).arrays, self._trainer.parameters))
            self._published_at = self._clock.now()
            self._changed.notify_all()

    def offer(self, node: str, session: int, blocks: list[Bytes]) -> list[Future[Bytes]]:
        """Accept messages of a node, in general its shares of some batches.

        Args:
            session: see `Welcome`.
            blocks: messages of a `Node`.

        Returns:
            The answer to each message, which comes when its share has been learned from.

        Raises:
            UserError: there is no such session: the node must join anew.
            MessageError: a message is none; those before it have been accepted.
        """
        with self._changed:
            known = self._nodes.get(node)
            if known is None or known.number != session:
                raise UserError(f"{node} has no session {session}: join anew")
            now = self._clock.now()
            answers = [known.offer(block, now) for block in blocks]
            self._changed.notify_all()
            return answers

    def weights(self, known: int) -> Bytes | None:
        """The published weights as a message; None if their version is not newer than `known`."""
        with self._training:
            if self._trainer is None or self._trainer.version <= known:
                return None
            version, updates, values = self._trainer.published()
            age = self._clock.now() - self._published_at
            return pack({"version": version, "updates": updates, "age_s": age}, {"weights": values})

    def snapshot(self) -> Bytes:
        """The learned state as a message.

        Raises:
            UserError: there is no state yet.
        """
        with self._training:
            if self._trainer is None or not self._trainer.begun:
                raise UserError("nothing has been learned yet")
            return pack({}, snapshot_arrays(self._trainer.snapshot()))

    def status(self, node: str | None = None) -> dict[str, Any]:
        """State of the learner and of its nodes, as values that JSON can express.

        Args:
            node: name of the node that asks. If None, no node asks.
        """
        with self._changed:
            now = self._clock.now()
            if node in self._nodes:
                self._nodes[node].called_at = now
            return {
                "incarnation": self.incarnation,
                "batches": self._batches,
                "checkpoint_dir": None if self._folder is None else str(self._folder),
                "checkpoint_error": self._save_error,
                "nodes": [
                    {
                        "id": name,
                        "share": 0 if each.is_silent(now) else self._share(name),
                        "generated": each.source.generated,
                        "rate": 0.0 if each.is_silent(now) else each.rate,
                        "shipped": each.shipped, "learned": each.learned,
                        "silent_s": now - each.sent_at,
                    }
                    for name, each in sorted(self._nodes.items())
                ],
            }

    # ---- learning

    def step(self, timeout_s: float) -> bool:
        """Learn from one batch, if its shares are there in `timeout_s`; whether they were."""
        found = self._compose(timeout_s)
        if found is None:
            return False
        trainer, learning_rate, parts = found
        drawn = [share.draw() for _, _, share in parts]
        columns = [each for each in drawn if each is not None]
        counts = [0 if each is None else len(each["actions"]) for each in drawn]
        if not columns:
            self._answer(parts, counts, {}, NO_ERRORS)
            return False
        batch = batch_of(columns)
        with self._training:
            started, before = self._clock.now(), trainer.version
            gradient = trainer.learn(batch, learning_rate)
            if published := trainer.version != before:
                self._published_at = self._clock.now()
            values = _update_values(gradient, trainer, self._clock.now() - started)
            errors = gradient.errors.numpy(force=True)
        self._answer(parts, counts, values, errors)
        if published:
            with self._training:
                for _, node, _ in parts:
                    if isinstance(node.source, Mirror):
                        # The trainer's network takes over the newest weights for this.
                        node.source.measure_transferred(trainer.errors)
            self._on_publish()
        return True

    def save_if_due(self, every_s: float) -> Path | None:
        """Write a checkpoint, if the last one is so old and something was learned since.

        Returns:
            Its path; None if none was written.

        Raises:
            CheckpointError: it cannot be written.
        """
        now = self._clock.now()
        if self._folder is None or self._trainer is None or now - self._saved_at < every_s:
            return None
        self._saved_at = now
        with self._training:
            updates = self._trainer.progress.updates
            if not self._trainer.begun or updates == self._saved_updates:
                return None
            try:
                path = self._trainer.save(self._folder, self._identity)
            except CheckpointError as error:
                self._save_error = str(error)
                raise
            self._saved_updates, self._save_error = updates, None
            return path

    def _source(self, joining: Joining) -> ReceivedShares | Mirror:
        """What gives a node's transitions; a replay of the same run is kept."""
        config, shapes = joining.config, joining.blueprint
        if config.cluster.replay == "edge":
            return ReceivedShares(joining.slots, shapes)
        known = self._nodes.get(joining.node)
        source = None if known is None else known.source
        if isinstance(source, Mirror) and source.made_for == (config, shapes):
            return source
        return Mirror(config, shapes, self._clock)

    def _end_session(self, name: str) -> None:
        if (session := self._nodes.pop(name, None)) is not None:
            session.end()

    def _forget_gone(self) -> None:
        """End the sessions of nodes that are gone: see `FORGOTTEN_S`."""
        long_ago = self._clock.now() - FORGOTTEN_S
        for name, node in list(self._nodes.items()):
            mirrored = isinstance(node.source, Mirror)
            if node.called_at < (min(long_ago, self._joined_at) if mirrored else long_ago):
                self._end_session(name)

    def _compose(
        self, timeout_s: float
    ) -> tuple[Trainer, float, list[tuple[str, Session, Share]]] | None:
        """Take the shares of the next batch from the queues; with trainer and step size."""
        end = self._clock.now() + timeout_s
        with self._changed:
            self._forget_gone()
            while not self._complete():
                now = self._clock.now()
                if now >= end:
                    return None
                # A share that comes wakes this thread; that a node is late does not.
                late = PATIENCE_S / 4 if self._waiting_since is not None else end - now
                self._changed.wait(min(end - now, late))
            self._waiting_since = None
            assert self._trainer is not None
            ready = sorted(name for name, node in self._nodes.items() if node.queue)
            parts = [(name, self._nodes[name], self._nodes[name].queue.popleft()) for name in ready]
            return self._trainer, self._lead(ready).learning_rate, parts

    def _complete(self) -> bool:
        """Whether there is a batch; nodes that are late for `PATIENCE_S` are left out of it."""
        ready = [node for node in self._nodes.values() if node.queue]
        if not ready or self._trainer is None or not self._trainer.begun:
            self._waiting_since = None
            return False
        now = self._clock.now()
        late = [self._nodes[name] for name in self._present() if not self._nodes[name].queue]
        if not late:
            return True
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < PATIENCE_S:
            return False
        for node in late:
            node.missed = True
        return True

    def _present(self) -> dict[str, float]:
        """Names and rates of the nodes that are asked for a share."""
        now = self._clock.now()
        return {
            name: node.rate for name, node in self._nodes.items()
            if not node.missed and not node.is_silent(now)
        }

    def _share(self, node: str) -> int:
        """Transitions of a batch that a node is asked for; 0 if it was forgotten meanwhile."""
        if node not in self._nodes:
            return 0
        present = self._present() | {node: self._nodes[node].rate}
        return max(1, shares(self._lead(present).batch_size, present)[node])

    def _lead(self, present: Collection[str]) -> Session:
        """The session whose settings hold: of these nodes, that of the node that joined first."""
        return min((self._nodes[name] for name in present), key=lambda each: each.number)

    def _answer(
        self, parts: list[tuple[str, Session, Share]], counts: list[int],
        values: dict[str, Any], errors: Floats,
    ) -> None:
        """Answer every share: what was learned from it, and how large the next one shall be."""
        at, answers = 0, []
        applied = values.get("outcome") == "applied"
        with self._changed:
            self._batches += applied
            now = self._clock.now()
            for (name, node, share), count in zip(parts, counts, strict=True):
                learned = count if applied else 0
                node.learned += learned
                own = np.asarray(errors[at : at + count], np.float32)
                more, arrays = node.source.learned(own) if count else ({}, {})
                own_values = {
                    **values, **more, "seq": share.seq, "share": self._share(name),
                    "learned": learned, "held_s": now - share.came,
                }
                answers.append((share.answer, pack(own_values, arrays)))
                at += count
        for answer, block in answers:
            answer.set_result(block)


def _trainer_of(joining: Joining) -> Trainer:
    """The trainer of the first node's network; raises UserError if this machine has none."""
    try:
        return Trainer(joining.config, joining.blueprint)
    except UserError as error:
        # The line is read at the node.
        raise UserError(f"on the learner's machine: {error}") from error


def _update_values(gradient: Gradient, trainer: Trainer, seconds: float) -> dict[str, Any]:
    """Values for every answer: of an update, the progress after it, and how long it took."""
    progress = trainer.progress
    left_out: Outcome = "overflowed" if gradient.overflowed else "skipped"
    outcome: Outcome = "applied" if gradient.finite else left_out
    return {
        "outcome": outcome, "loss": gradient.loss, "norm": gradient.norm,
        "updates": progress.updates, "samples": progress.samples, "seconds": seconds,
        "precision": trainer.precision, "loss_scale": trainer.loss_scale,
    }
