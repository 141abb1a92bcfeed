"""Random graphs of tasks, with whole numbers as times."""

from __future__ import annotations

import random

from rtagent.placement.problem import Problem, Task, Unit

UNITS = (
    Unit("cpu:0", "float32"), Unit("cpu:0", "bfloat16"), Unit("cpu:1", "float32"),
    Unit("cpu:1", "bfloat16"),
)


def random_problem(seed: int, tasks: int, units: int = 4) -> Problem:
    """A graph with transfers, ties, units that cannot run a task, sometimes little memory.

    It has two units at least.
    """
    draw = random.Random(seed)
    made: list[Task] = []
    for number in range(tasks):
        times: list[float | None] = [float(draw.randint(0, 20)) for _ in range(units)]
        if draw.random() < 0.3:
            times[draw.randrange(units)] = None
        after = tuple(each for each in range(number) if draw.random() < 0.3)
        tie = draw.randrange(number) if number and draw.random() < 0.4 else None
        processor = draw.random() < 0.5
        made.append(Task(
            f"task {number}", tuple(times), after, processor_of=tie if processor else None,
            precision_of=None if processor else tie, output_mb=float(draw.randint(0, 2)),
            memory_mb=float(draw.randint(0, 5)),
        ))
    handover = tuple(
        tuple(0.0 if UNITS[u].processor == UNITS[v].processor else float(draw.randint(0, 4))
              for v in range(units))
        for u in range(units)
    )
    each = tuple(tuple(float(u // 2 != v // 2) for v in range(units)) for u in range(units))
    capacity = {}
    if units > 2 and draw.random() < 0.3:
        capacity["cpu:1"] = float(draw.randint(0, 3 * tasks))
    return Problem(UNITS[:units], tuple(made), handover, each, capacity)
