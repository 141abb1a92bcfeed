"""What the supervisor tells the workers: settings that change while they run.

Why it is correct. The settings travel in one `JsonDoubleBuffer` that only the supervisor writes; a
worker compares its number once per cycle and parses the document only when it has changed. A
document that it cannot read whole stays unread: it goes on with the one it has, and looks again the
next time.
The document holds the live settings alone; every process has the others since its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from rtagent.config import Config, EnvConfig, InferenceConfig, LearningConfig, R3Config
from rtagent.live_config import live_values, with_values
from rtagent.memory.double_buffer import JsonDoubleBuffer

CAPACITY = 16 << 10


@dataclass(frozen=True)
class DesiredState:
    """Settings in force.

    Attributes:
        config: the configuration with every change so far.
        processes: inference processes 0..processes-1 act; the others leave.
        rows: rows of action slots that may hold an action, at least `processes`.
        learner_ring: the learners that take turns now, in this order.
        batch_bytes: memory reserved for batches. If None, unlimited.
        checkpoint: number of checkpoints asked for so far.
        inference_since: when the inference settings last came into force after a change, monotonic
            seconds; 0: they have not changed.
        go: the world's clock may start.
        stop: every worker leaves.
    """

    config: Config
    processes: int = 1
    rows: int = 1
    learner_ring: list[int] = field(default_factory=list)
    batch_bytes: int | None = None
    checkpoint: int = 0
    inference_since: float = 0.0
    go: bool = False
    stop: bool = False

    @property
    def env(self) -> EnvConfig:
        """Settings of the environment."""
        return self.config.env

    @property
    def inference(self) -> InferenceConfig:
        """Settings of acting."""
        return self.config.inference

    @property
    def learning(self) -> LearningConfig:
        """Settings of learning; learners 0..processes-1 learn, the others leave."""
        return self.config.learning

    @property
    def r3(self) -> R3Config:
        """Settings of the deadline and the budgets."""
        return self.config.r3


class Control:
    """The desired state in shared memory.

    Args:
        buffer: `size()` bytes.
        config: what the run started with.
    """

    def __init__(self, buffer: memoryview, config: Config) -> None:
        self._buffer = JsonDoubleBuffer(buffer, CAPACITY)
        self._config = config
        self._document: dict[str, Any] | None = None
        self._desired: DesiredState

    @staticmethod
    def size() -> int:
        """Bytes of the document."""
        return JsonDoubleBuffer.size(CAPACITY)

    def write(self, desired: DesiredState) -> None:
        """Put a new state in force. Only the supervisor."""
        document = {each.name: getattr(desired, each.name) for each in fields(desired)}
        self._buffer.write(document | {"config": live_values(desired.config)})

    @property
    def desired(self) -> DesiredState:
        """The state in force; the supervisor writes the first before it starts any worker."""
        document = self._buffer.read()
        if document is not self._document:
            config = with_values(self._config, document["config"])
            self._desired = DesiredState(**document | {"config": config})
            self._document = document
        return self._desired
