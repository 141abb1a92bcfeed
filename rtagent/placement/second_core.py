"""A second core for parts of one step: calls are handed over, and their results waited for.

Why it is correct. Calls run one after the other in one thread, in the order in which they were
handed over. The queue and the lock of a call are the only things that both threads touch; each
orders what was written before against what is read after. So a call sees all that was written
before it was handed over, and a thread that has waited for it sees all that it wrote; neither may
be touched in between. torch releases the interpreter's lock while it computes, so both threads
compute at once. Each thread has its own number of OpenMP threads; the second one copies that of the
first, or its first operations would use every core. An error in a call is raised again where its
result is asked for. The thread dies with its process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Pending(Generic[T]):
    """A call that was handed over."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Lock()
        self._done.acquire()
        self._result: T
        self._error: BaseException | None = None

    def result(self) -> T:
        """Wait for the call; raises what it raised. May be called once."""
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        call = self._call
        del self._call
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()


class SecondCore:
    """A thread that runs the calls that it is given."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Pending[Any] | None] = SimpleQueue()
        self._torch_threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._run, name="second core", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Pending[T]:
        """Hand a call over."""
        pending = Pending(call)
        self._calls.put(pending)
        return pending

    def close(self) -> None:
        """Finish all calls, and end the thread."""
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(self._torch_threads)
        while (pending := self._calls.get()) is not None:
            pending._run()
