"""A learning step as a graph of tasks, made from its profile.

The parts that learn values are on one autograd tape and stay on the first processor. Elsewhere may
run each pass as a whole (`profile.PASSES`; the pass of an actor includes its backward pass, which
has a tape of its own), and the gradient of each layer's weights, for which only the end of the step
waits. A layer's backward pass has the precision of its forward pass (AP-DRL, Algorithm 1).

The times of a part are those beside a busy core, if another part can run beside it, else those
alone. In a plan for one processor all times are those alone. So the times include the effect of the
memory that cores share, as it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rtagent.placement.heuristic import best_single
from rtagent.placement.problem import Plan, Problem, Task, Unit, critical_path
from rtagent.placement.profile import Part, Profile
from rtagent.placement.program import GAP, solve

FIRST = "cpu:0"
SECOND = "cpu:1"
BESIDE = frozenset({"forward", "inputs", "weights"})
"""Kinds of parts of the step itself beside which others may run."""
WORTH = 0.95
"""A plan replaces a simpler one if it is predicted to take at most this share of its time."""
SECOND_CORE_WORTH = 0.85
"""The same of the first plan with a second core: predictions may be 15 % off."""


@dataclass(frozen=True)
class Placement:
    """A plan of a step, and the plan that it is compared with.

    Attributes:
        profile: of the step.
        problem: its graph; a task for each part of the profile.
        plan: where and when each task runs.
        single: the best plan for one processor. If None, it is this one.
    """

    profile: Profile
    problem: Problem
    plan: Plan
    single: Placement | None = None

    @property
    def uses_second(self) -> bool:
        """Whether anything runs on the second core."""
        return any(self.unit(number).processor == SECOND for number in range(len(self.plan.placed)))

    def unit(self, number: int) -> Unit:
        """The unit on which a task runs."""
        return self.problem.units[self.plan.placed[number].unit]

    @property
    def whole(self) -> float:
        """Time of a step over the sum of its parts, see `Profile.whole`."""
        return self.profile.whole(split=bool(self.split_layers))

    @property
    def predicted_us(self) -> float:
        """Time of a step by the plan: its length times `whole`."""
        return self.plan.length_us * self.whole

    @property
    def predicted_single_us(self) -> float:
        """Time of a step by the best plan for one processor."""
        return (self.single or self).predicted_us

    @property
    def precision(self) -> str | None:
        """The precision of all layers but those that lack it; None if the plan mixes several."""
        layers = [(n, part) for n, part in enumerate(self.profile.parts) if part.layer]
        for each in self.profile.precisions:
            if all(self.unit(n).precision in part.in_precision(each) for n, part in layers):
                return each
        return None

    @property
    def late(self) -> frozenset[str]:
        """Layers whose weights' gradient is computed on the first core after the backward pass."""
        parts, placed = self.profile.parts, self.plan.placed
        tape = [n for n, part in enumerate(parts) if part.kind == "inputs"]
        end = max((placed[n].end_us for n in tape), default=0.0)
        return frozenset(
            part.layer for n, part in enumerate(parts)
            if part.kind == "weights" and self.unit(n).processor != SECOND
            and placed[n].start_us >= end and n < max(tape, default=0)
        )

    @property
    def split_layers(self) -> frozenset[str]:
        """Layers that the plan's runner must run; torch runs the others as without a plan."""
        parts = self.profile.parts
        if self.precision is None:
            return frozenset(part.layer for part in parts if part.layer)
        return self.late | {
            part.layer for n, part in enumerate(parts)
            if part.kind == "weights" and self.unit(n).processor == SECOND
        }

    def critical(self) -> list[int]:
        """The tasks that determine its length, in their order."""
        return critical_path(self.problem, self.plan)


def place(profile: Profile) -> Placement:
    """The best plan of a step, or a simpler one that is about as fast.

    The simplest plan uses one core; the next has passes on the second core; the last has weights'
    gradients there, too. A second core must save more than a prediction may be wrong by.

    Raises:
        NoPlan: there is none.
    """
    best = single = place_on_one(profile)
    if profile.cores < 2:
        return single
    proven, shortest_us = True, single.predicted_us
    for weights, precisions in ((False, (_fastest(profile),)), (True, profile.precisions)):
        problem = step_problem(profile, precisions, beside=True, weights=weights)
        plan = solve(problem)
        proven = proven and plan.proven
        found = Placement(profile, problem, plan, single)
        shortest_us = min(shortest_us, found.predicted_us)
        worth = WORTH if best.uses_second else SECOND_CORE_WORTH
        if found.predicted_us <= worth * best.predicted_us:
            best = found
    # A simpler plan that is about as fast is not the shortest.
    proven = proven and best.plan.proven and _is_shortest(best, shortest_us)
    return replace(best, plan=replace(best.plan, proven=proven))


def place_on_one(profile: Profile) -> Placement:
    """The best plan of a step on one core; in a single precision if that is about as fast.

    Raises:
        NoPlan: there is none.
    """
    one, mixed = (
        Placement(profile, problem, replace(best_single(problem), proven=True)) for problem in (
            step_problem(profile, precisions, beside=False)
            for precisions in ((_fastest(profile),), profile.precisions)
        )
    )
    if mixed.predicted_us <= WORTH * one.predicted_us:
        return mixed
    return replace(one, plan=replace(one.plan, proven=_is_shortest(one, mixed.predicted_us)))


def _is_shortest(placement: Placement, shortest_us: float) -> bool:
    """Whether nothing that was found is shorter by more than a rounding."""
    return placement.predicted_us <= shortest_us * (1.0 + GAP)


def _fastest(profile: Profile) -> str:
    """The precision in which a step on one core is fastest."""
    return min(profile.step_us, key=lambda each: profile.step_us[each])


def step_problem(
    profile: Profile, precisions: tuple[str, ...], *, beside: bool, weights: bool = True
) -> Problem:
    """The graph of a step.

    Args:
        profile: of the step.
        precisions: that may be used; a layer that has none of them keeps its own.
        beside: whether there is a second processor.
        weights: whether gradients of weights may be computed there by themselves.
    """
    processors = (FIRST, SECOND) if beside else (FIRST,)
    names = tuple(dict.fromkeys(("float32", *precisions)))
    units = tuple(Unit(processor, each) for processor in processors for each in names)
    tasks: list[Task] = []
    numbers = {(part.layer, part.kind): number for number, part in enumerate(profile.parts)}
    passes = [part.own_pass for part in profile.parts]
    for part in profile.parts:
        first = passes.index(part.own_pass)
        tied = part.own_pass is not None and first != len(tasks)
        moves = part.own_pass is not None or (weights and part.kind == "weights")
        times = _times(part, precisions, beside)
        tasks.append(Task(
            part.name, tuple(
                times.get(unit.precision) if moves or unit.processor == FIRST else None
                for unit in units
            ), part.after, output_mb=part.output_mb, processor_of=first if tied else None,
            precision_of=numbers.get(part.forward) if part.forward else None,
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


def _times(part: Part, precisions: tuple[str, ...], beside: bool) -> dict[str, float]:
    """Microseconds of a part, by precision."""
    shared = beside and (part.own_pass is not None or part.kind in BESIDE)
    times = part.beside_us if shared else part.alone_us
    if not part.layer:
        # A part of no layer has no precision; it counts as float32.
        return {"float32": min(times.values())}
    usable = {name for each in precisions for name in part.in_precision(each)}
    return {name: us for name, us in times.items() if name in usable}
