"""The program against brute force, and against another solver."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

import pytest

from rtagent.placement import program
from rtagent.placement.heuristic import best_single, first_plan, single_plan
from rtagent.placement.problem import NoPlan, Plan, Problem, Task, critical_path, schedule
from rtagent.placement.program import solve
from tests.placement.graphs import UNITS, random_problem


def assert_keeps_every_rule(problem: Problem, plan: Plan) -> None:
    for number, task in enumerate(problem.tasks):
        mine = plan.placed[number]
        assert mine.end_us == pytest.approx(mine.start_us + problem.time_us(number, mine.unit))
        for before in task.after:
            its = plan.placed[before]
            moved = problem.transfer_us(before, its.unit, mine.unit)
            assert mine.start_us >= its.end_us + moved - 1e-9
    units = {number: placed.unit for number, placed in enumerate(plan.placed)}
    assert all(problem.fits(units, number, unit) for number, unit in units.items())
    for processor in problem.processors:
        mine_here = [
            n for n, placed in enumerate(plan.placed)
            if problem.units[placed.unit].processor == processor
        ]
        spans = sorted((plan.placed[n].start_us, plan.placed[n].end_us) for n in mine_here)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))
        used = sum(problem.tasks[n].memory_mb for n in mine_here)
        assert used <= problem.capacity_mb.get(processor, used)


def brute_force(problem: Problem) -> float | None:
    """The length of the shortest plan, by trying them all."""
    numbers = range(len(problem.tasks))
    orders = [
        order for order in permutations(numbers)
        if all(order.index(b) < order.index(n) for n in numbers for b in problem.tasks[n].after)
    ]
    lengths = []
    for units in product(*(problem.usable(n) for n in numbers)):
        assigned = dict(enumerate(units))
        if not all(problem.fits(assigned, n, unit) for n, unit in assigned.items()):
            continue
        used = dict.fromkeys(problem.processors, 0.0)
        for n, unit in assigned.items():
            used[problem.units[unit].processor] += problem.tasks[n].memory_mb
        if any(used[p] > limit for p, limit in problem.capacity_mb.items()):
            continue
        for order in orders:
            priority = [float(order.index(n)) for n in numbers]
            lengths.append(schedule(problem, list(units), priority).length_us)
    return min(lengths, default=None)


def by_constraint_programming(problem: Problem) -> float | None:
    """The same with CP-SAT: optional intervals that do not overlap on a processor."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    horizon = 10_000
    starts, ends, runs = [], [], []
    on: dict[str, list[cp_model.IntervalVar]] = {p: [] for p in problem.processors}
    for number in range(len(problem.tasks)):
        start, end = (model.new_int_var(0, horizon, f"{e}{number}") for e in "se")
        mine = {}
        for unit in problem.usable(number):
            mine[unit] = model.new_bool_var(f"x{number},{unit}")
            on[problem.units[unit].processor].append(model.new_optional_interval_var(
                start, int(problem.time_us(number, unit)), end, mine[unit], f"i{number},{unit}"
            ))
        model.add_exactly_one(mine.values())
        starts.append(start), ends.append(end), runs.append(mine)
    for intervals in on.values():
        model.add_no_overlap(intervals)
    for number, task in enumerate(problem.tasks):
        for before in task.after:
            for (u, left), (v, right) in product(runs[before].items(), runs[number].items()):
                moved = int(problem.transfer_us(before, u, v))
                model.add(starts[number] >= ends[before] + moved).only_enforce_if(left, right)
        for u, v in product(range(len(problem.units)), repeat=2):
            elsewhere = problem.units[u].processor != problem.units[v].processor
            unlike = problem.units[u].precision != problem.units[v].precision
            for leader, apart in ((task.processor_of, elsewhere), (task.precision_of, unlike)):
                if leader is not None and apart and u in runs[leader] and v in runs[number]:
                    model.add_at_most_one(runs[leader][u], runs[number][v])
    for processor, limit in problem.capacity_mb.items():
        model.add(sum(
            int(problem.tasks[n].memory_mb) * run for n, mine in enumerate(runs)
            for unit, run in mine.items() if problem.units[unit].processor == processor
        ) <= int(limit))
    length = model.new_int_var(0, horizon, "T")
    model.add_max_equality(length, ends)
    model.minimize(length)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return float(solver.objective_value)


def assert_is_shortest(problem: Problem, length_us: float | None) -> Plan | None:
    """The plan, which is as long as the shortest; None if there is none, and none is found."""
    if length_us is None:
        with pytest.raises(NoPlan):
            solve(problem)
        return None
    plan = solve(problem, limit_s=60.0)
    assert plan.proven
    assert plan.length_us == pytest.approx(length_us)
    assert_keeps_every_rule(problem, plan)
    return plan


@pytest.mark.parametrize("seed", range(30, 50))
def test_no_plan_is_shorter_by_brute_force(seed: int) -> None:
    problem = random_problem(seed, tasks=4, units=2 + seed % 3)
    assert_is_shortest(problem, brute_force(problem))


@pytest.mark.parametrize("seed", range(30, 36))
def test_the_search_needs_no_plan_to_begin_with(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    problem = random_problem(seed, tasks=4)
    monkeypatch.setattr(program, "first_plan", lambda problem: None)
    assert_is_shortest(problem, brute_force(problem))


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="CP-SAT for Python 3.13 does not load beside HiGHS"
)
@pytest.mark.parametrize("seed", range(100, 112))
def test_no_plan_is_shorter_by_constraint_programming(seed: int) -> None:
    problem = random_problem(seed, tasks=7)
    plan = assert_is_shortest(problem, by_constraint_programming(problem))
    assert plan is None or solve(problem, limit_s=60.0) == plan, "the same in every call"


def test_without_time_the_best_plan_so_far_is_named_as_such() -> None:
    problem = random_problem(7, tasks=40)
    plan = solve(replace(problem, capacity_mb={}), limit_s=0.0)
    assert not plan.proven
    assert_keeps_every_rule(replace(problem, capacity_mb={}), plan)


def test_a_solver_that_fails_leaves_the_simple_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(random_problem(3, tasks=5), capacity_mb={})
    monkeypatch.setattr(program._Program, "solve", lambda self, limit_s: None)
    assert solve(problem) == first_plan(problem)
    monkeypatch.setattr(program, "first_plan", lambda problem: None)
    with pytest.raises(NoPlan, match="no plan was found within 2 s"):
        solve(problem)


def test_what_runs_nowhere_has_no_plan() -> None:
    problem = Problem(UNITS[:2], (Task("conv1 forward", (None, None)),))
    with pytest.raises(NoPlan, match="conv1 forward cannot run on any unit"):
        solve(problem)


def test_without_a_plan_ties_are_named_too() -> None:
    apart = (Task("f", (1.0, None)), Task("g", (None, 1.0), processor_of=0))
    for tasks, capacity_mb in (apart, {}), (
        (Task("f", (1.0, 1.0), memory_mb=2.0),), {"cpu:0": 1.0, "cpu:1": 1.0}
    ):
        with pytest.raises(NoPlan, match="no plan keeps tied tasks together and within the memory"):
            solve(Problem(UNITS[::2], tasks, capacity_mb=capacity_mb))


@pytest.mark.parametrize("refers", [{"after": (0,)}, {"processor_of": 1}, {"precision_of": -1}])
def test_a_task_refers_to_earlier_ones_only(refers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="conv1 forward: what it refers to must come before it"):
        solve(Problem(UNITS[:1], (Task("conv1 forward", (1.0,), **refers),)))


def test_whatever_its_priority_a_task_waits_for_its_predecessors() -> None:
    problem = Problem(UNITS[:1], (Task("f", (3.0,)), Task("g", (4.0,), (0,))))
    plan = schedule(problem, [0, 0], [1.0, 0.0])
    assert [each.start_us for each in plan.placed] == [0.0, 3.0]


def test_nothing_to_do_takes_no_time() -> None:
    assert solve(Problem(UNITS, ())) == Plan((), proven=True)


def test_the_best_single_processor_chooses_a_precision_for_each_tie() -> None:
    tasks = (
        Task("f", (10.0, 6.0, 30.0, 30.0)),
        Task("b", (20.0, 30.0, 30.0, 30.0), (0,), precision_of=0),
        Task("head", (1.0, None, 1.0, None), (1,)),
    )
    problem = Problem(UNITS, tasks)
    plan = best_single(problem)
    assert [placed.unit for placed in plan.placed] == [0, 0, 0]
    assert plan.length_us == 31.0
    for limit, found in ((0.0, plan), (-1.0, None)):
        assert single_plan(replace(problem, capacity_mb={"cpu:0": limit}), "cpu:0") == found
    elsewhere = replace(problem, tasks=(Task("f", (None, None, 1.0, 1.0)),))
    assert single_plan(elsewhere, "cpu:0") is None
    with pytest.raises(NoPlan, match="no single processor"):
        best_single(replace(problem, tasks=(
            Task("f", (1.0, None, None, None)), Task("g", (None, None, 1.0, None)),
        )))


@pytest.mark.parametrize(("tie", "capacity_mb", "length_us"), [
    ({}, {}, 12.0), ({}, {"cpu:1": 0.5}, 20.0), ({}, {"cpu:0": 1.0, "cpu:1": 1.0}, 12.0),
    ({"processor_of": 0}, {}, 20.0), ({"processor_of": 0}, {"cpu:0": 1.0, "cpu:1": 1.0}, None),
])
def test_the_first_plan_has_each_task_where_it_ends_first(
    tie: dict[str, int], capacity_mb: dict[str, float], length_us: float | None
) -> None:
    tasks = (Task("f", (10.0, 12.0), memory_mb=1.0), Task("g", (10.0, 12.0), memory_mb=1.0, **tie))
    plan = first_plan(Problem(UNITS[::2], tasks, capacity_mb=capacity_mb))
    assert (None if plan is None else plan.length_us) == length_us


@pytest.mark.parametrize("seed", range(10))
def test_the_critical_path_is_as_long_as_the_plan(seed: int) -> None:
    problem = replace(random_problem(seed, tasks=8), capacity_mb={})
    plan = first_plan(problem)
    path = critical_path(problem, plan)
    assert plan.placed[path[0]].start_us == 0.0
    assert plan.placed[path[-1]].end_us == plan.length_us
    for before, task in pairwise(path):
        moved = problem.transfer_us(before, plan.placed[before].unit, plan.placed[task].unit)
        ends = plan.placed[before].end_us
        assert plan.placed[task].start_us in (ends, ends + moved)
