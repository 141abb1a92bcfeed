"""The weights that learners publish; inference processes take them over between two inferences.

An `ArrayDoubleBuffer` of three copies, so that a reader fails only if three publications begin
during its copy. One process publishes at a time: the one whose turn it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtagent.memory.array_buffer import (
    CONTROL_BYTES,
    ArrayDoubleBuffer,
    Copying,
    Floats,
    into,
)

BUFFERS = 3


@dataclass(frozen=True)
class WeightsInfo:
    """What a publication says about itself.

    Attributes:
        version: grows by one per publication and survives restarts of the daemon.
        updates: gradient steps behind these weights; drives exploration.
    """

    version: int
    updates: int


class WeightBuffers(ArrayDoubleBuffer[WeightsInfo]):
    """The published weights.

    Args:
        buffer: `WeightBuffers.size(parameters)` bytes; zeroed, nothing is published.
        parameters: number of values.
    """

    def __init__(self, buffer: memoryview, parameters: int) -> None:
        control, payload = buffer[:CONTROL_BYTES], buffer[CONTROL_BYTES:]
        super().__init__(control, payload, WeightsInfo, parameters, copies=BUFFERS)

    @staticmethod
    def size(parameters: int) -> int:
        """Bytes for networks with that many values."""
        return CONTROL_BYTES + ArrayDoubleBuffer.payload_bytes(parameters, copies=BUFFERS)

    def publish(self, values: Floats, info: WeightsInfo) -> None:
        """Publish new weights. Only the learner whose turn it is."""
        self.publish_by(lambda out: into(out)(values), info)

    def publish_by(self, filling: Copying, info: WeightsInfo) -> None:
        """Publish weights that `filling` writes into the array that it is given; see `publish`."""
        total = filling(self.copies[self.begin()][0])
        self.commit(info, total)
