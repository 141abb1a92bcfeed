"""All shared memory of one run: laid out by the supervisor, mapped by every process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.memory.actions import ActionSlots
from rtagent.memory.alternation import Alternation
from rtagent.memory.arena import PAGE, Arena, ArenaHandle, check_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import Control
from rtagent.memory.double_buffer import JsonDoubleBuffer
from rtagent.memory.engine_models import EngineModels
from rtagent.memory.frames import FrameRing
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.ledger import Ledger
from rtagent.memory.policy_states import PolicyStates
from rtagent.memory.priorities import Priorities
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.ring import RingBounds
from rtagent.memory.ring_memory import RingMemory, SlotArray
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.turns import Turns
from rtagent.memory.weights import WeightBuffers
from rtagent.staggering.state import StaggerState

STATUS_CAPACITY = 512 << 10
CLUSTER_CAPACITY = 256 << 10
"""The document has room for more than a thousand nodes."""
RESERVE_AHEAD_S = 60.0
"""How far ahead of the write position the rings are reserved, within the next two bounds."""
RESERVE_SHARE = 64
"""One in so many of the ticks that are kept is reserved ahead, at most."""
LEAST_RESERVE_TICKS = 64
"""At least so many ticks, and those of a second, are reserved ahead."""
MAINTENANCE_BYTES = 16 << 20
"""What one call of `maintain` punches and reserves at most: some milliseconds of work."""


@dataclass(frozen=True)
class WorldHandles:
    """Everything a worker needs to find its way. Picklable.

    Attributes:
        config: of the run, as it started.
        blueprint: shapes and rates.
        arenas: by name.
        first_tick: number of the run's first tick; above 0 if a saved replay comes before it.
    """

    config: Config
    blueprint: Blueprint
    arenas: dict[str, ArenaHandle]
    first_tick: int = 0


class WorldMemory:
    """The arenas of one run, owned by the supervisor.

    Args:
        config: how many ticks the rings can keep, and how much memory they may take.
        blueprint: shapes and rates.
        first_tick: number of the run's first tick.

    Attributes:
        bytes_per_tick: of its frame and its row.

    Raises:
        UserError: the memory, grown to its whole size, is not available.
    """

    def __init__(self, config: Config, blueprint: Blueprint, first_tick: int = 0) -> None:
        self._capacity = capacity = config.replay.capacity
        self._rate_hz = blueprint.rate_hz
        self._slots = {
            "frames": FrameRing.arrays(blueprint, capacity),
            "ledger": Ledger.arrays(blueprint),
        }
        self.bytes_per_tick = sum(size for arrays in self._slots.values() for _, size in arrays)
        most, fixed = config.r3.memory_budget_mb, _fixed_sizes(config, blueprint)
        rest = None if most is None else (most << 20) - sum(fixed.values())
        limit = capacity if rest is None else max(1, self.ticks_in(rest))
        check_memory({**fixed, **_ring_sizes(blueprint, limit)})
        self._arenas: dict[str, Arena] = {}
        try:
            for name, size in fixed.items():
                self._arenas[name] = Arena(name, size)
            growing = _ring_sizes(blueprint, capacity)
            if not config.learning.processes:
                growing["learner"] = LearnerState.size(blueprint.learned_parameters)
            for name, size in growing.items():
                self._arenas[name] = Arena(name, size, sparse=True)
                self._arenas[name].reserve(0, PAGE)
            arenas = {name: arena.handle for name, arena in self._arenas.items()}
            self.handles = WorldHandles(config, blueprint, arenas, first_tick)
            self._format()
            self._ring_memory = self._lay_out_rings(first_tick)
            while not self.maintain(first_tick - 1, limit):
                pass
        except BaseException:
            self.close()
            raise

    def maintain(self, newest: int, limit: int, budget: int = MAINTENANCE_BYTES) -> bool:
        """Give up the ticks that the limit leaves out, and keep the writer's next ones reserved.

        Called about ten times a second, off the hot path.

        Args:
            newest: number of the newest tick.
            limit: ticks to keep, 1 .. replay.capacity.
            budget: bytes to return to the system, and to reserve, at most.

        Returns:
            Whether nothing is left to return or to reserve; otherwise the next call goes on.

        Raises:
            UserError: the memory to reserve is not available; what can be returned has been.
        """
        return self._ring_memory.maintain(newest, limit, self._reserve_ticks(limit), budget)

    def ticks_in(self, size: int) -> int:
        """Ticks to keep that take at most `size` bytes with the reserve ahead of the writer.

        At most replay.capacity; not positive if `size` is less than the least reserve.
        """
        ticks = size // self.bytes_per_tick
        return self._capacity if ticks >= self._capacity else ticks - self._reserve_ticks(ticks)

    def pages(self) -> dict[str, int]:
        """Bytes of memory that the kernel holds for each arena at this moment."""
        return {name: arena.held for name, arena in self._arenas.items()}

    def reserve_learners(self) -> None:
        """Reserve the memory of the learners' shared state, in a run that began without learners.

        Raises:
            UserError: the memory is not available.
        """
        arena = self._arenas["learner"]
        arena.reserve(0, arena.size)

    def close(self) -> None:
        """Give up the descriptors."""
        for arena in self._arenas.values():
            arena.close()

    def _reserve_ticks(self, limit: int) -> int:
        """Ticks to reserve ahead of the newest one while `limit` ticks are kept."""
        wanted = min(round(RESERVE_AHEAD_S * self._rate_hz), limit // RESERVE_SHARE)
        return min(max(wanted, LEAST_RESERVE_TICKS, round(self._rate_hz)), self._capacity)

    def _lay_out_rings(self, first_tick: int) -> RingMemory:
        rings, arrays = [], []
        for name, slots in self._slots.items():
            arena = self._arenas[name]
            rings.append(RingBounds(memoryview(arena.handle.map()), self._capacity))
            rings[-1].begin(first_tick - 1, first_tick)
            arrays += [SlotArray(arena, start, size) for start, size in slots]
        return RingMemory(rings, arrays, self._capacity, first_tick)

    def _format(self) -> None:
        arenas, blueprint = self.handles.arenas, self.handles.blueprint
        FrameRing.format(memoryview(arenas["frames"].map()))
        Ledger.format(memoryview(arenas["ledger"].map()))
        ActionSlots.format(memoryview(arenas["actions"].map()))
        if "states" in arenas:
            PolicyStates.format(memoryview(arenas["states"].map()), blueprint.state_size)
        if "priorities" in arenas:
            Priorities.format(memoryview(arenas["priorities"].map()))


def _fixed_sizes(config: Config, blueprint: Blueprint) -> dict[str, int]:
    """Bytes of all arenas but those of the rings, which grow."""
    fixed = {
        "weights": WeightBuffers.size(blueprint.parameters),
        "actions": ActionSlots.size(blueprint),
        "metrics": ProcessMetrics.size(),
        "control": Control.size(),
        "stagger": StaggerState.nbytes(),
        "status": JsonDoubleBuffer.size(STATUS_CAPACITY),
        "claims": 1,
        "turns": Turns.size(),
        "apply": 1,
        "horizon": HorizonRecord.size(),
        "alternation": Alternation.size(),
    }
    elsewhere = config.learning.where == "cluster"
    if config.learning.prioritized and not (elsewhere and config.cluster.replay == "learner"):
        fixed |= {"priorities": Priorities.size(config.replay.capacity), "priorities-lock": 1}
    if blueprint.state_size:
        fixed["states"] = PolicyStates.size(blueprint.state_size)
    if config.policy.engine != "torch":
        fixed["engine"] = EngineModels.size(blueprint.parameters)
    if elsewhere:
        fixed["cluster"] = JsonDoubleBuffer.size(CLUSTER_CAPACITY)
    if config.learning.processes:
        fixed["learner"] = LearnerState.size(blueprint.learned_parameters)
    return fixed


def _ring_sizes(blueprint: Blueprint, capacity: int) -> dict[str, int]:
    """Bytes of each ring with so many slots."""
    return {
        "frames": FrameRing.size(blueprint, capacity),
        "ledger": Ledger.size(blueprint, capacity),
    }


class World:
    """The shared memory of one run as this process sees it.

    Each structure is mapped when it is first used.

    Args:
        handles: from the supervisor.
    """

    def __init__(self, handles: WorldHandles) -> None:
        self.config = handles.config
        self.blueprint = handles.blueprint
        self.first_tick = handles.first_tick
        self._arenas = handles.arenas
        self._locks: list[RobustLock] = []

    def _lock(self, name: str) -> RobustLock:
        """A lock, open until the end of this world."""
        self._locks.append(RobustLock(self._arenas[name]))
        return self._locks[-1]

    def _map(self, name: str) -> memoryview:
        return memoryview(self._arenas[name].map())

    @cached_property
    def frames(self) -> FrameRing:
        """The frame ring. Writer: the environment."""
        return FrameRing(self._map("frames"), self.blueprint, self.config.replay.capacity)

    @cached_property
    def ledger(self) -> Ledger:
        """The tick ledger. Writer: the environment."""
        return Ledger(self._map("ledger"), self.blueprint, self.config.replay.capacity)

    @cached_property
    def actions(self) -> ActionSlots:
        """The action slots. Writer of row i: inference process i."""
        return ActionSlots(self._map("actions"), self.blueprint)

    @cached_property
    def states(self) -> PolicyStates | None:
        """The states of a recurrent policy. Writer of ring i: inference process i."""
        if "states" not in self._arenas:
            return None
        return PolicyStates(self._map("states"), self.blueprint.state_size)

    @cached_property
    def weights(self) -> WeightBuffers:
        """The weight buffers. Writer: the learner whose turn it is."""
        return WeightBuffers(self._map("weights"), self.blueprint.parameters)

    @cached_property
    def engine_models(self) -> EngineModels | None:
        """Models for engines, if one is configured. Writer: the converter."""
        if "engine" not in self._arenas:
            return None
        return EngineModels(self._map("engine"), self.blueprint.parameters)

    @cached_property
    def metrics(self) -> ProcessMetrics:
        """The process metrics. Writer of each record: its process."""
        return ProcessMetrics(self._map("metrics"))

    @cached_property
    def control(self) -> Control:
        """The desired state. Writer: the supervisor."""
        return Control(self._map("control"), self.config)

    @cached_property
    def status(self) -> JsonDoubleBuffer:
        """State of the run and its processes. Writer: the supervisor."""
        return JsonDoubleBuffer(self._map("status"), STATUS_CAPACITY)

    @cached_property
    def stagger(self) -> StaggerState:
        """The staggering state. Writer: the holder of the claim lock."""
        return StaggerState(self._map("stagger"))

    @cached_property
    def claim_lock(self) -> RobustLock:
        """The lock of the staggering state."""
        return self._lock("claims")

    @cached_property
    def learner(self) -> LearnerState:
        """What the learners share. Writer: the holder of the apply lock."""
        return LearnerState(self._map("learner"), self.blueprint.learned_parameters)

    @cached_property
    def turns(self) -> Turns:
        """Whose turn it is, and the apply lock. Writer: the holder of that lock."""
        return Turns(self._map("turns"), self._lock("apply"))

    @cached_property
    def alternation(self) -> Alternation:
        """Acting and learning by turns. Writers: the inference process, and the learner."""
        return Alternation(self._map("alternation"))

    @cached_property
    def horizon(self) -> HorizonRecord:
        """The training horizon. Writers: the holder of the apply lock, and the supervisor."""
        return HorizonRecord(self._map("horizon"))

    @cached_property
    def priorities(self) -> Priorities | None:
        """The priorities of transitions, with learning.prioritized, unless a cluster's learner has
        them. Writer: the lock's holder."""
        if "priorities" not in self._arenas:
            return None
        lock, capacity = self._lock("priorities-lock"), self.config.replay.capacity
        return Priorities(self._map("priorities"), capacity, lock, MonotonicClock())

    @cached_property
    def cluster(self) -> JsonDoubleBuffer | None:
        """The state of the link to the cluster, if there is one. Writer: the gateway."""
        if "cluster" not in self._arenas:
            return None
        return JsonDoubleBuffer(self._map("cluster"), CLUSTER_CAPACITY)

    def close(self) -> None:
        """Give up the locks' descriptors; the mappings go with the last reference."""
        while self._locks:
            self._locks.pop().close()
