"""A learning step as a graph of tasks, made of its profile.

The online network's passes hang on one autograd tape and stay on the first processor; what may go
elsewhere is the target's pass, that of the online network over successors, and each layer's
gradient of its weights, for which only the end of the step waits. A layer's backward pass has the
precision of its forward pass (AP-DRL, Algorithm 1).

Which times count: those beside a busy core, for a part that something can run beside; else those
alone. A plan for one processor counts all of them alone. So the memory that cores share is in the
times, as it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rtagent.placement.heuristic import best_single
from rtagent.placement.problem import Plan, Problem, Task, Unit, critical_path
from rtagent.placement.profile import Part, Profile
from rtagent.placement.program import LIMIT_S, solve

FIRST = "cpu:0"
SECOND = "cpu:1"
ON_THE_TAPE = frozenset({"forward", "inputs"})
WORTH = 0.95
"""Two cores are used for a plan that takes at most this share of the time of one core."""
PASSES = frozenset({"target", "successors"})


@dataclass(frozen=True)
class Placement:
    """A plan of a step, and what it is compared with.

    Attributes:
        profile: what it is made of.
        problem: its graph; a task for each part of the profile.
        plan: the chosen one.
        single_us: length of the best plan for one processor.
    """

    profile: Profile
    problem: Problem
    plan: Plan
    single_us: float

    @property
    def uses_second(self) -> bool:
        """Whether anything runs on the second core."""
        return any(self.unit(number).processor == SECOND for number in range(len(self.plan.placed)))

    def unit(self, number: int) -> Unit:
        """Where a task runs."""
        return self.problem.units[self.plan.placed[number].unit]

    @property
    def predicted_us(self) -> float:
        """What a step takes by the plan: its length, as much longer as a whole step is."""
        return self.plan.length_us * self.profile.whole

    @property
    def predicted_single_us(self) -> float:
        """The same by the best plan for one processor."""
        return self.single_us * self.profile.whole

    @property
    def first_busy_us(self) -> float:
        """How long the first core computes in the plan."""
        placed = [
            each for n, each in enumerate(self.plan.placed) if self.unit(n).processor == FIRST
        ]
        return sum(each.end_us - each.start_us for each in placed)

    def critical(self) -> list[int]:
        """The tasks that make it as long as it is."""
        return critical_path(self.problem, self.plan)


def place(profile: Profile, limit_s: float = LIMIT_S) -> Placement:
    """The shortest plan of a step: on two cores, or on one if that is about as fast.

    Raises:
        NoPlan: there is none.
    """
    single = place_on_one(profile)
    if profile.cores < 2:
        return single
    beside = step_problem(profile, beside=True)
    found = solve(beside, limit_s)
    if found.length_us > WORTH * single.single_us:
        return replace(single, plan=replace(single.plan, proven=found.proven))
    return Placement(profile, beside, found, single.single_us)


def place_on_one(profile: Profile) -> Placement:
    """The shortest plan of a step on one core.

    Raises:
        NoPlan: there is none.
    """
    alone = step_problem(profile, beside=False)
    plan = best_single(alone)
    return Placement(profile, alone, replace(plan, proven=True), plan.length_us)


def step_problem(profile: Profile, *, beside: bool) -> Problem:
    """The graph of a step.

    Args:
        profile: its parts.
        beside: whether there is a second processor.
    """
    processors = (FIRST, SECOND) if beside else (FIRST,)
    precisions = tuple(dict.fromkeys(("float32", *profile.precisions)))
    units = tuple(Unit(processor, each) for processor in processors for each in precisions)
    tasks: list[Task] = []
    numbers = {(part.layer, part.kind): number for number, part in enumerate(profile.parts)}
    kinds = [part.kind for part in profile.parts]
    for part in profile.parts:
        first = kinds.index(part.kind)
        tied = part.kind in PASSES and first != len(tasks)
        backward = part.kind in ("inputs", "weights")
        tasks.append(Task(
            part.name, tuple(_time(part, unit, beside) for unit in units),
            _predecessors(profile, len(tasks)), output_mb=part.output_mb,
            processor_of=first if tied else None,
            precision_of=numbers.get((part.layer, "forward")) if backward else None,
        ))
    handover = tuple(
        tuple(profile.handover_us if u.processor != v.processor else 0.0 for v in units)
        for u in units
    )
    casts = tuple(
        tuple(profile.cast_us_per_mb if u.precision != v.precision else 0.0 for v in units)
        for u in units
    )
    return Problem(units, tuple(tasks), handover, casts)


def _time(part: Part, unit: Unit, beside: bool) -> float | None:
    """Of a part on a unit; None if it stays elsewhere."""
    moves = part.kind in PASSES or part.kind == "weights"
    if unit.processor != FIRST and not moves:
        return None
    shared = beside and (moves or part.kind in ON_THE_TAPE)
    times = part.beside_us if shared else part.alone_us
    if not part.layer:
        # Its precision is that of nothing.
        return min(times.values()) if unit.precision == "float32" else None
    return times.get(unit.precision)


def _predecessors(profile: Profile, number: int) -> tuple[int, ...]:
    """Numbers of the parts that one waits for."""
    parts = profile.parts
    kind = parts[number].kind
    earlier = range(number)

    def last(*kinds: str) -> list[int]:
        found = [each for each in earlier if parts[each].kind in kinds]
        return found[-1:]

    if kind == "takeover":
        return ()
    if kind in PASSES or kind == "forward":
        return tuple(last(kind) or last("takeover"))
    if kind == "loss":
        return tuple(each for one in ("forward", *sorted(PASSES)) for each in last(one))
    if kind in ("inputs", "weights"):
        return tuple(last("inputs") or last("loss"))
    if kind == "gradient":
        weights = [each for each in earlier if parts[each].kind == "weights"]
        return (*last("inputs"), *weights)
    return tuple(last("gradient"))
