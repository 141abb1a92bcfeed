"""A process with little of what the system gives it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limited(name: str, most: int) -> Iterator[None]:
    """Inside, this process has no more than so much of a resource, say of `FSIZE`."""
    which = getattr(resource, f"RLIMIT_{name}")
    before = resource.getrlimit(which)
    resource.setrlimit(which, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)
