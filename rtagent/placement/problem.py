"""What is to be placed: tasks with their times on each unit; and plans for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from rtagent.errors import UserError


class NoPlan(UserError):
    """There is no plan, or none was found."""


@dataclass(frozen=True)
class Unit:
    """A processor in one precision.

    Attributes:
        processor: its name, such as `cpu:0`; it runs a single task at a time.
        precision: `float32`, `bfloat16`, `float16` or `int8`.
    """

    processor: str
    precision: str

    @property
    def name(self) -> str:
        """Its name where it is printed."""
        return f"{self.processor} {self.precision}"


@dataclass(frozen=True)
class Task:
    """A node of the graph.

    Attributes:
        name: as it is printed.
        times: (units,) microseconds; None where it cannot run.
        after: numbers of its predecessors, all smaller than its own.
        processor_of: number of an earlier task on whose processor it must run. If None, it may run
            on any.
        precision_of: number of an earlier task whose precision it must have. If None, it may have
            any.
        output_mb: MiB that its successors need of it.
        memory_mb: a_ij of Eq. 7, MiB that it keeps on its processor.
    """

    name: str
    times: tuple[float | None, ...]
    after: tuple[int, ...] = ()
    processor_of: int | None = None
    precision_of: int | None = None
    output_mb: float = 0.0
    memory_mb: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A graph of tasks, and the units that they can be placed on.

    Attributes:
        units: of all processors.
        tasks: predecessors before successors.
        handover_us: (units, units) microseconds from the end of a task on one unit to the start of
            its successor on another. If empty, 0.
        us_per_mb: (units, units) further microseconds for each MiB of its output. If empty, 0.
        capacity_mb: A_j of Eq. 7, by processor; a processor that is not named has no limit.
    """

    units: tuple[Unit, ...]
    tasks: tuple[Task, ...]
    handover_us: tuple[tuple[float, ...], ...] = ()
    us_per_mb: tuple[tuple[float, ...], ...] = ()
    capacity_mb: dict[str, float] = field(default_factory=dict)

    @property
    def processors(self) -> tuple[str, ...]:
        """The names of the processors, in the order of the units."""
        return tuple(dict.fromkeys(unit.processor for unit in self.units))

    def transfer_us(self, task: int, source: int, target: int) -> float:
        """Microseconds from the end of a task on one unit until a successor starts on another."""
        if source == target:
            return 0.0
        fixed = self.handover_us[source][target] if self.handover_us else 0.0
        each = self.us_per_mb[source][target] if self.us_per_mb else 0.0
        return fixed + each * self.tasks[task].output_mb

    def time_us(self, task: int, unit: int) -> float:
        """Microseconds of a task on a unit.

        Raises:
            NoPlan: it cannot run there.
        """
        time = self.tasks[task].times[unit]
        if time is None:
            raise NoPlan(f"{self.tasks[task].name} cannot run on {self.units[unit].name}")
        return time

    def usable(self, task: int) -> tuple[int, ...]:
        """Units on which a task can run."""
        times = self.tasks[task].times
        return tuple(unit for unit, time in enumerate(times) if time is not None)

    def fits(self, assigned: dict[int, int], task: int, unit: int) -> bool:
        """Whether a task may run on a usable unit, given the units of earlier tasks."""
        mine, its = self.tasks[task], self.units[unit]
        beside, like = mine.processor_of, mine.precision_of
        if beside is not None and self.units[assigned[beside]].processor != its.processor:
            return False
        return like is None or self.units[assigned[like]].precision == its.precision


@dataclass(frozen=True)
class Placed:
    """Where and when a task runs: its unit's number, and microseconds from the beginning."""

    unit: int
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Plan:
    """A schedule.

    Attributes:
        placed: (tasks,).
        proven: whether it is proven that no plan is shorter.
    """

    placed: tuple[Placed, ...]
    proven: bool = False

    @property
    def length_us(self) -> float:
        """T of Eq. 3: when the last task ends."""
        return max((each.end_us for each in self.placed), default=0.0)


def schedule(problem: Problem, units: list[int], priority: list[float]) -> Plan:
    """Start each task as early as its predecessors and its processor allow.

    Args:
        problem: the tasks.
        units: (tasks,) the unit of each.
        priority: (tasks,) among the tasks whose predecessors are placed, the lowest is placed next.
    """
    free = dict.fromkeys(problem.processors, 0.0)
    placed: dict[int, Placed] = {}
    waiting = set(range(len(problem.tasks)))
    while waiting:
        ready = (each for each in waiting if placed.keys() >= set(problem.tasks[each].after))
        task = min(ready, key=lambda each: (priority[each], each))
        unit = units[task]
        processor = problem.units[unit].processor
        start = max([free[processor], *(
            placed[before].end_us + problem.transfer_us(before, placed[before].unit, unit)
            for before in problem.tasks[task].after
        )])
        placed[task] = Placed(unit, start, start + problem.time_us(task, unit))
        free[processor] = placed[task].end_us
        waiting.remove(task)
    return Plan(tuple(placed[task] for task in range(len(problem.tasks))))


def critical_path(problem: Problem, plan: Plan) -> list[int]:
    """The tasks that determine the length of the plan, in their order.

    Each waits for the one before it, for its output or for its processor.
    """
    placed = plan.placed
    path: list[int] = []
    task = max(range(len(placed)), key=lambda each: placed[each].end_us, default=None)
    while task is not None:
        path.append(task)
        task = _waited_for(problem, plan, task, path)
    return path[::-1]


def _waited_for(problem: Problem, plan: Plan, task: int, known: list[int]) -> int | None:
    """The task whose end let another start, among those that are not known yet."""
    placed, mine = plan.placed, plan.placed[task]
    processor = problem.units[mine.unit].processor
    candidates = []
    for other, its in enumerate(placed):
        follows = other in problem.tasks[task].after
        shares = problem.units[its.unit].processor == processor and its.end_us <= mine.start_us
        if mine.start_us == 0.0 or other in known or not (follows or shares):
            continue
        moved = problem.transfer_us(other, its.unit, mine.unit) if follows else 0.0
        candidates.append((its.end_us + moved, other))
    return max(candidates)[1] if candidates else None
