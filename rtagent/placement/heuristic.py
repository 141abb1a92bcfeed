"""Plans that are quick to find: where the search begins, and what its plan must beat."""

from __future__ import annotations

from rtagent.placement.problem import NoPlan, Plan, Problem, schedule


def first_plan(problem: Problem) -> Plan | None:
    """The best of some simple plans; None if none of them keeps within the memory.

    They are: everything on one processor; and, in the order of the longest path to the end, each
    task where it ends first (HEFT, Topcuoglu et al., 2002).
    """
    plans = [single_plan(problem, processor) for processor in problem.processors]
    plans.append(_earliest_finish(problem))
    return min((each for each in plans if each), key=lambda plan: plan.length_us, default=None)


def best_single(problem: Problem) -> Plan:
    """The shortest plan that uses one processor.

    Raises:
        NoPlan: no processor can run all tasks.
    """
    plans = (single_plan(problem, processor) for processor in problem.processors)
    best = min((each for each in plans if each), key=lambda plan: plan.length_us, default=None)
    if best is None:
        raise NoPlan("no single processor can run the whole step")
    return best


def single_plan(problem: Problem, processor: str) -> Plan | None:
    """The shortest plan on one processor; None if it cannot run all tasks."""
    here = [n for n, unit in enumerate(problem.units) if unit.processor == processor]
    limit = problem.capacity_mb.get(processor)
    if limit is not None and sum(task.memory_mb for task in problem.tasks) > limit:
        return None
    chosen: dict[int, int] = {}
    for group in tied(problem):
        able = [unit for unit in here if all(unit in problem.usable(task) for task in group)]
        if not able:
            return None
        unit = min(able, key=lambda each: sum(problem.time_us(task, each) for task in group))
        chosen |= dict.fromkeys(group, unit)
    order = [float(task) for task in range(len(problem.tasks))]
    return schedule(problem, [chosen[task] for task in range(len(problem.tasks))], order)


def tied(problem: Problem) -> list[list[int]]:
    """The tasks in groups that share a precision, directly or through other tasks."""
    groups: dict[int, list[int]] = {}
    leaders: list[int] = []
    for number, task in enumerate(problem.tasks):
        leaders.append(number if task.precision_of is None else leaders[task.precision_of])
        groups.setdefault(leaders[number], []).append(number)
    return list(groups.values())


def _earliest_finish(problem: Problem) -> Plan | None:
    """Each task where it ends first; None if a tie leaves a task without a unit."""
    rank = _longest_path(problem)
    assigned: dict[int, int] = {}
    free = dict.fromkeys(problem.processors, 0.0)
    ends: dict[int, float] = {}
    left = dict(problem.capacity_mb)
    for task in sorted(range(len(problem.tasks)), key=lambda each: (-rank[each], each)):
        mine = problem.tasks[task]
        best: tuple[float, int] | None = None
        ties = (mine.processor_of, mine.precision_of)
        if any(tie is not None and tie not in assigned for tie in ties):
            return None
        for unit in problem.usable(task):
            processor = problem.units[unit].processor
            if not problem.fits(assigned, task, unit) or not _followers_can(problem, task, unit):
                continue
            if left.get(processor, mine.memory_mb) < mine.memory_mb:
                continue
            start = max([free[processor], *(
                ends[each] + problem.transfer_us(each, assigned[each], unit) for each in mine.after
            )])
            end = start + problem.time_us(task, unit)
            best = min(best, (end, unit)) if best else (end, unit)
        if best is None:
            return None
        ends[task], assigned[task] = best
        processor = problem.units[assigned[task]].processor
        free[processor] = ends[task]
        if processor in left:
            left[processor] -= mine.memory_mb
    units = [assigned[task] for task in range(len(problem.tasks))]
    return schedule(problem, units, [-each for each in rank])


def _longest_path(problem: Problem) -> list[float]:
    """For each task, the length of the longest path from it to the end, by shortest times."""
    rank = [min(time for time in task.times if time is not None) for task in problem.tasks]
    mine = list(rank)
    for number in reversed(range(len(problem.tasks))):
        for before in problem.tasks[number].after:
            rank[before] = max(rank[before], mine[before] + rank[number])
    return rank


def _followers_can(problem: Problem, task: int, unit: int) -> bool:
    """Whether the tasks that are tied to a task can run if it runs on a unit."""
    mine = problem.units[unit]
    for follower, its in enumerate(problem.tasks):
        usable = [problem.units[each] for each in problem.usable(follower)]
        if its.processor_of == task and all(each.processor != mine.processor for each in usable):
            return False
        if its.precision_of == task and all(each.precision != mine.precision for each in usable):
            return False
    return True
