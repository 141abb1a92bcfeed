"""How a batch is divided among the buffer nodes: in proportion to the transitions they generate.

S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. VI-B: N / R experiences from
each of R replay memories, and more from a memory that receives more.
"""

from __future__ import annotations

from collections.abc import Mapping


def shares(batch_size: int, rates: Mapping[str, float]) -> dict[str, int]:
    """Transitions of a batch that each node is asked for.

    Each node has at least one, unless there are more nodes than transitions. What is left after
    rounding down goes to the nodes with the largest remainders.

    Args:
        batch_size: N.
        rates: transitions per second that each node generates, by its name; none is negative, and
            there is at least one node. If all rates are 0, all nodes count the same.
    """
    total = sum(rates.values())
    even = 1.0 / len(rates)
    weights = {node: rate / total if total > 0 else even for node, rate in rates.items()}
    least = 1 if batch_size >= len(rates) else 0
    rest = batch_size - least * len(rates)
    exact = {node: weight * rest for node, weight in weights.items()}
    result = {node: least + int(value) for node, value in exact.items()}
    left = batch_size - sum(result.values())
    by_remainder = sorted(exact, key=lambda node: (int(exact[node]) - exact[node], node))
    for node in by_remainder[:left]:
        result[node] += 1
    return result
