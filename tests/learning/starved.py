"""A learner's batches in a process whose address space ends a little above what it uses.

Prints, as JSON, the sizes that did not fit and the size that did in the end.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from rtagent.learning.out_of_memory import is_out_of_memory, release

ROOM = 64 << 20
SAMPLE = (4, 84, 84)


def main() -> None:
    """Halve until it fits, then go on for some updates."""
    torch.set_num_threads(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 8, 4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * 20 * 20, 16),
    )
    _update(network, 1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    size, failed, done = 4096, [], 0
    while done < 3:
        try:
            _update(network, size)
            done += 1
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size == 1:
                raise
            release()
            failed.append(size)
            size //= 2
    json.dump({"failed": failed, "size": size}, sys.stdout)


def _update(network: torch.nn.Module, size: int) -> None:
    network.zero_grad()
    network(torch.zeros((size, *SAMPLE))).sum().backward()


if __name__ == "__main__":
    main()
