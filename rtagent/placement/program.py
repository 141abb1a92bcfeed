"""The integer linear program of AP-DRL: where each task runs, so that all are done soonest.

Eqs. 2-7 (Sec. IV-C) of E. Li, Z. Lin, S. Sinha and W. Zhang, AP-DRL: A Synergistic
Algorithm-Hardware Framework for Automatic Task Partitioning of Deep Reinforcement Learning on
Versal ACAP, arXiv:2603.29369, with additions. For task i and unit u, x_iu says whether i runs on u,
S_i when it starts, t_iu how long it takes:

    minimize T                                                                       (2)
    T >= S_i + sum_u x_iu t_iu                             for all i                 (3), (6)
    sum_u x_iu = 1                                         for all i                 (4)
    S_k >= S_i + sum_u x_iu t_iu + transfer_ik             for all k after i         (5)
    sum_i x_iu a_i <= A_p                                  over the units u of p     (7)

As printed, Eq. 5 leaves out S_i: a successor could start before its predecessor has. Added are:
transfer_ik is at least the time of i's output from u to v where x_iu = x_kv = 1; tasks that share a
processor run one after the other; tasks that are tied share a processor, or a precision. One more
row for each processor follows from these, and makes the search shorter: T is at least the work on
the processor.

Times are divided by the length of a known plan, so that 1 serves as the "big M" and the solver's
tolerances are relative to it. That length is rounded up to a power of two: a division that rounds
makes equal numbers differ for the solver, which then loses plans.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import highspy
import numpy as np

from rtagent.placement.heuristic import first_plan
from rtagent.placement.problem import NoPlan, Plan, Problem, schedule

LIMIT_S = 2.0
"""Longest search for a better plan."""
GAP = 1e-6
"""Relative difference to the optimum that counts as none."""
TOLERANCE = 1e-9


def solve(problem: Problem, limit_s: float = LIMIT_S) -> Plan:
    """The shortest plan, or the best one found in time, then `proven` is false.

    The result is the same in every call, unless time runs out.

    Raises:
        NoPlan: there is none, or none was found in time.
    """
    _check(problem)
    begun = first_plan(problem)
    found = _Program(problem, begun).solve(limit_s)
    if found is None:
        if begun is None:
            raise NoPlan(f"no plan was found within {limit_s:g} s")
        return begun
    if begun is not None and begun.length_us <= found.length_us:
        found = Plan(begun.placed, found.proven)
    return _in_turn(problem, found)


def _in_turn(problem: Problem, plan: Plan) -> Plan:
    """The plan with each processor's tasks in their order, unless that makes it longer.

    The program leaves open when a task runs that no other task waits for.
    """
    units = [placed.unit for placed in plan.placed]
    ordered = schedule(problem, units, [float(task) for task in range(len(units))])
    return plan if ordered.length_us > plan.length_us else Plan(ordered.placed, plan.proven)


def _check(problem: Problem) -> None:
    for number, task in enumerate(problem.tasks):
        ties = [each for each in (task.processor_of, task.precision_of) if each is not None]
        if any(not 0 <= each < number for each in (*task.after, *ties)):
            raise ValueError(f"{task.name}: what it refers to must come before it")
        if not problem.usable(number):
            raise NoPlan(f"{task.name} cannot run on any unit")


class _Program:
    """Columns and rows of the program, and its solution."""

    def __init__(self, problem: Problem, begun: Plan | None) -> None:
        self._problem, self._begun = problem, begun
        self._scale = _power_of_two(_longest(problem) if begun is None else begun.length_us)
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._start: list[float] = []
        self._rows: list[tuple[float, float, dict[int, float]]] = []
        self._length = self._column(1.0, value=begun.length_us / self._scale if begun else 0.0)
        self._starts = [
            self._column(1.0, value=begun.placed[task].start_us / self._scale if begun else 0.0)
            for task in range(len(problem.tasks))
        ]
        self._runs = [
            {unit: self._column(1.0, whole=True, value=self._runs_first(task, unit))
             for unit in problem.usable(task)}
            for task in range(len(problem.tasks))
        ]
        self._assignment()
        self._precedence()
        self._one_at_a_time()

    def solve(self, limit_s: float) -> Plan | None:
        """The best plan found; None if there is none.

        Raises:
            NoPlan: there cannot be one.
        """
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (
            ("output_flag", False), ("threads", 1), ("random_seed", 0), ("time_limit", limit_s),
            ("mip_rel_gap", GAP),
            # With presolve, or wider tolerances, HiGHS 1.15 calls a longer plan optimal in one of
            # some hundred random graphs.
            ("presolve", "off"), ("mip_feasibility_tolerance", TOLERANCE),
            ("primal_feasibility_tolerance", TOLERANCE), ("dual_feasibility_tolerance", TOLERANCE),
        ):
            solver.setOptionValue(name, value)
        solver.passModel(self._model())
        if self._begun is not None:
            solution = highspy.HighsSolution()
            solution.col_value = self._start
            solver.setSolution(solution)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible and self._begun is None:
            raise NoPlan("no plan keeps tied tasks together and within the memory of the units")
        values = list(solver.getSolution().col_value)
        feasible = highspy.SolutionStatus.kSolutionStatusFeasible
        if solver.getInfo().primal_solution_status != feasible:
            return None
        units = [max(runs, key=lambda unit: values[runs[unit]]) for runs in self._runs]
        # By their middles, for a task without length may start when another one does.
        middles = [
            values[start] + self._problem.time_us(task, units[task]) / self._scale / 2.0
            for task, start in enumerate(self._starts)
        ]
        plan = schedule(self._problem, units, middles)
        return Plan(plan.placed, proven=status == highspy.HighsModelStatus.kOptimal)

    # ---- columns and rows

    def _column(self, upper: float, *, whole: bool = False, value: float = 0.0) -> int:
        self._upper.append(upper)
        self._whole.append(whole)
        self._start.append(value)
        return len(self._upper) - 1

    def _at_least(self, lower: float, terms: dict[int, float], upper: float = np.inf) -> None:
        self._rows.append((lower, upper, terms))

    def _less_time(self, task: int) -> dict[int, float]:
        """-sum_u x_iu t_iu."""
        return {
            column: -self._problem.time_us(task, unit) / self._scale
            for unit, column in self._runs[task].items()
        }

    def _runs_first(self, task: int, unit: int) -> float:
        return float(self._begun is not None and self._begun.placed[task].unit == unit)

    def _assignment(self) -> None:
        problem = self._problem
        for number, task in enumerate(problem.tasks):
            runs = self._runs[number]
            self._at_least(1.0, dict.fromkeys(runs.values(), 1.0), 1.0)
            ends = {self._length: 1.0, self._starts[number]: -1.0} | self._less_time(number)
            self._at_least(0.0, ends)
            for tie, part in (
                (task.processor_of, "processor"), (task.precision_of, "precision"),
            ):
                if tie is not None:
                    self._share(runs, self._runs[tie], part)
        for processor in problem.processors:
            here = {n for n, unit in enumerate(problem.units) if unit.processor == processor}
            work, memory = {self._length: 1.0}, {}
            for number, task in enumerate(problem.tasks):
                for unit, column in self._runs[number].items():
                    if unit in here:
                        work[column] = -problem.time_us(number, unit) / self._scale
                        memory[column] = task.memory_mb
            self._at_least(0.0, work)
            if processor in problem.capacity_mb:
                self._at_least(-np.inf, memory, problem.capacity_mb[processor])

    def _share(self, left: dict[int, int], right: dict[int, int], part: str) -> None:
        """Two tasks run on units with the same processor, or the same precision."""
        units = self._problem.units
        for value in {getattr(unit, part) for unit in units}:
            alike = {n for n, unit in enumerate(units) if getattr(unit, part) == value}
            terms = {left[unit]: 1.0 for unit in alike & left.keys()}
            terms |= {right[unit]: -1.0 for unit in alike & right.keys()}
            self._at_least(0.0, terms, 0.0)

    def _precedence(self) -> None:
        problem = self._problem
        for after, task in enumerate(problem.tasks):
            for before in task.after:
                terms = {self._starts[after]: 1.0, self._starts[before]: -1.0}
                transfer = self._transfer(before, after)
                if transfer is not None:
                    terms[transfer] = -1.0
                self._at_least(0.0, terms | self._less_time(before))

    def _transfer(self, before: int, after: int) -> int | None:
        """A column for the transfer between two tasks; None if it takes no time in any case."""
        times = {
            (u, v): self._problem.transfer_us(before, u, v) / self._scale
            for u, v in product(self._runs[before], self._runs[after])
        }
        if not any(times.values()):
            return None
        column = self._column(max(times.values()))
        for (u, v), time in times.items():
            if self._runs_first(before, u) and self._runs_first(after, v):
                self._start[column] = time
            if time:
                terms = {column: 1.0, self._runs[before][u]: -time, self._runs[after][v]: -time}
                self._at_least(-time, terms)
        return column

    def _one_at_a_time(self) -> None:
        """If two tasks are on one processor, one ends before the other starts.

        S_j >= S_i + t_i - M (3 - o - y_ip - y_jp), and the other way round with 1 - o.
        """
        problem = self._problem
        before = _ancestors(problem)
        for first, second in combinations(range(len(problem.tasks)), 2):
            if first in before[second]:
                continue
            shared = [p for p in problem.processors if self._on(first, p) and self._on(second, p)]
            if not shared:
                continue
            begun = self._begun
            order = self._column(1.0, whole=True, value=float(
                begun is not None and begun.placed[first].start_us <= begun.placed[second].start_us
            ))
            for processor in shared:
                together = dict.fromkeys(
                    (*self._on(first, processor), *self._on(second, processor)), -1.0
                )
                for i, j, sign, bound in ((first, second, -1.0, -3.0), (second, first, 1.0, -2.0)):
                    terms = self._less_time(i)
                    for column in together:
                        terms[column] = terms.get(column, 0.0) - 1.0
                    terms |= {self._starts[j]: 1.0, self._starts[i]: -1.0, order: sign}
                    self._at_least(bound, terms)

    def _on(self, task: int, processor: str) -> list[int]:
        return [
            column for unit, column in self._runs[task].items()
            if self._problem.units[unit].processor == processor
        ]

    def _model(self) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._upper), len(self._rows)
        model.col_cost_ = np.eye(1, len(self._upper)).ravel()
        model.col_lower_, model.col_upper_ = np.zeros(len(self._upper)), np.array(self._upper)
        model.row_lower_ = np.array([lower for lower, _, _ in self._rows])
        model.row_upper_ = np.array([upper for _, upper, _ in self._rows])
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(terms) for _, _, terms in self._rows)])
        matrix.index_ = np.array([column for _, _, terms in self._rows for column in terms])
        matrix.value_ = np.array([value for _, _, terms in self._rows for value in terms.values()])
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in self._whole]
        return model


def _longest(problem: Problem) -> float:
    """An upper bound on the length of any plan without idle time."""
    units = range(len(problem.units))
    times = sum(max(time for time in task.times if time is not None) for task in problem.tasks)
    return times + sum(
        max(problem.transfer_us(before, u, v) for u, v in product(units, units))
        for task in problem.tasks for before in task.after
    )


def _power_of_two(value: float) -> float:
    """The smallest power of two that is not below a value."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 0.0 else 1.0


def _ancestors(problem: Problem) -> list[set[int]]:
    """For each task, all tasks that must end before it starts."""
    before: list[set[int]] = []
    for task in problem.tasks:
        before.append(set(task.after).union(*(before[each] for each in task.after)))
    return before
