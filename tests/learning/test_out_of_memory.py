"""Lack of memory: recognised, survived, measured."""

from __future__ import annotations

import ctypes
import mmap
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import multiprocess
import numpy as np
import pytest
import torch
from multiprocess.connection import Connection

from rtagent.learning import out_of_memory
from rtagent.learning.out_of_memory import is_out_of_memory, measure_peak, release
from rtagent.processes.freed_memory import keep_freed_memory
from tests.conftest import one_fork_server

MIB = 1 << 20
SIZE = 48 * MIB
PR_SET_THP_DISABLE = 41


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_the_errors_of_torch_on_the_processor_are_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_numpy_and_python_raise_memory_errors() -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 60, np.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("could not create a memory object"),
        RuntimeError("could not create a primitive"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_messages_of_other_libraries_are_recognised(error: RuntimeError) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("could not create a primitive descriptor for a convolution"),
        ValueError("out of memory"),
        KeyError("memory"),
    ],
)
def test_other_errors_are_not_a_lack_of_memory(error: Exception) -> None:
    assert not is_out_of_memory(error)


def leave_room() -> None:
    """Let the address space end 64 MiB above what is used."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * MIB,) * 2)


def asks_with_little_room(pipe: Connection) -> None:
    leave_room()
    answers, before = [], resident()
    for count in (32 * MIB, 96 * MIB, 32 * MIB):
        try:
            out_of_memory.ask_for(count)
            answers.append("there is")
        except MemoryError as error:
            answers.append(str(error))
    pipe.send((answers, resident() - before))


@pytest.mark.process
def test_asking_for_memory_uses_none(answer_of: Callable[..., Any]) -> None:
    answers, used = answer_of(asks_with_little_room)
    refused = f"{96 * MIB} bytes cannot be had: Cannot allocate memory"
    assert answers == ["there is", refused, "there is"]
    assert used < 2 * MIB


def test_memory_that_the_kernel_promises_and_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a container the kernel ended each learner that used such memory, again and again."""
    monkeypatch.setattr(out_of_memory, "available_memory", lambda: 96 * MIB)
    out_of_memory.ask_for(96 * MIB)
    with pytest.raises(MemoryError, match="cannot be had"):
        out_of_memory.ask_for(97 * MIB)


def test_unused_memory_is_given_back_before_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_back: list[int] = []

    def has_room(count: int) -> None:
        if not given_back:
            raise OSError

    monkeypatch.setattr(out_of_memory, "_map", has_room)
    monkeypatch.setattr(out_of_memory, "release", lambda: given_back.append(1))
    out_of_memory.ask_for(MIB)
    out_of_memory.ask_for(MIB)
    assert given_back == [1]


def test_release_gives_back_what_malloc_keeps() -> None:
    blocks = [bytearray(4096) for _ in range(SIZE // 4096)]
    full = resident()
    # The last block stays, so that malloc cannot shrink its heap by itself.
    del blocks[:-1]
    release()
    assert full - resident() > SIZE // 2


@pytest.mark.parametrize("public", [True, False])
def test_release_gives_back_pinned_memory_too(
    public: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch keeps it in a cache of its own, apart from that of the GPU's memory."""
    emptied: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: emptied.append("waited"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append("device"))
    if public:
        owner, name = torch.accelerator, "empty_host_cache"
    else:
        owner, name = torch._C, "_host_emptyCache"
        monkeypatch.delattr(torch.accelerator, "empty_host_cache", raising=False)
    monkeypatch.setattr(owner, name, lambda: emptied.append("host"), raising=False)
    release()
    assert emptied == ["waited", "device", "host"]


def faults_of_large_tensors(pipe: Connection) -> None:
    """Page faults of using 40 MiB again and again, before and after; memory that is given back."""
    # Where the machine makes pages large, there are a hundred times fewer faults to be seen.
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)

    def faults() -> int:
        # Small blocks take the rests between large ones: up to eight have been seen to be needed.
        for _ in range(30):
            torch.ones(10 * MIB)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.ones(10 * MIB)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    before = faults()
    keep_freed_memory()
    after, kept = faults(), resident()
    release()
    pipe.send((before, after, kept - resident()))


@pytest.mark.process
def test_memory_that_is_kept_costs_no_page_faults_and_can_be_given_back(
    answer_of: Callable[..., Any],
) -> None:
    before, after, given_back = answer_of(faults_of_large_tensors)
    assert before > 100 * max(after, 1)
    assert given_back > 35 * MIB


@pytest.mark.parametrize("may_reset", [True, False])
def test_peak_of_a_call_that_gives_everything_back(
    may_reset: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, looks = Path("/proc/self"), []
    if not may_reset:
        process = tmp_path
        (tmp_path / "clear_refs").mkdir()
        (tmp_path / "status").symlink_to("/proc/self/status")
    status = out_of_memory._status

    def look(process: Path, name: str) -> int:
        looks.append(status(process, name))
        return looks[-1]

    monkeypatch.setattr(out_of_memory, "_status", look)
    until = time.monotonic() + 60.0

    def run() -> None:
        # Not from malloc, which may have so much in reserve.
        with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
            for _ in range(SIZE // MIB):
                held.write(bytes(MIB))
            before = len(looks)
            # Until the thread has looked; one look may have begun before.
            while not may_reset and len(looks) < before + 2 and time.monotonic() < until:
                time.sleep(0.001)

    # The kernel may take back pages of libraries meanwhile, which then count against the call.
    while not SIZE * 0.9 < (peak := measure_peak(run, process)) < SIZE * 1.2:
        assert time.monotonic() < until, f"{peak}; seen last: {looks[-8:]}"


def test_peak_of_nothing_is_small_although_more_was_in_use_before() -> None:
    np.ones(SIZE, np.uint8).sum()
    assert measure_peak(lambda: None) < MIB


@pytest.fixture(scope="module")
def answer_of() -> Iterator[Callable[[Callable[[Connection], None]], Any]]:
    """Runs a function of this module in a child as workers are; what it sends."""

    def ask(body: Callable[[Connection], None]) -> Any:
        ours, theirs = multiprocess.Pipe()
        process = fork_server.spawn(body, theirs)
        theirs.close()
        assert ours.poll(180.0)
        answer = ours.recv()
        process.join()
        return answer

    with one_fork_server() as fork_server:
        yield ask


def peaks_after_memory_was_refused(pipe: Connection) -> None:
    """Peaks of one call, time after time, where malloc has got much and has been refused more."""
    # malloc looks for another heap in a process with threads, as learners have them.
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    # Freed, it makes malloc keep up to 62 MiB of what is free in the end of a heap.
    np.ones(31 * MIB, np.uint8).sum()
    with pytest.raises(RuntimeError):
        torch.empty(1 << 60, dtype=torch.uint8)
    blocks = [bytearray(4096) for _ in range(SIZE // 4096)]
    del blocks
    pipe.send([measure_peak(lambda: np.ones(SIZE, np.uint8).sum()) for _ in range(5)])


@pytest.mark.process
def test_peaks_of_a_worker_that_was_refused_memory(answer_of: Callable[..., Any]) -> None:
    assert answer_of(peaks_after_memory_was_refused) == [pytest.approx(SIZE, rel=0.1)] * 5


def peaks_of_batches(pipe: Connection) -> None:
    """Peaks of a network's outputs for 1,000 rows and for 4,000."""
    network, peaks = torch.nn.Linear(2000, 2000), []
    for size in (1000, 4000):
        batch = torch.zeros(size, 2000)
        network(batch)
        peaks.append(measure_peak(lambda batch=batch: network(batch)))  # type: ignore[misc]
    pipe.send(peaks)


@pytest.mark.process
def test_peak_grows_with_the_batch(answer_of: Callable[..., Any]) -> None:
    small, large = answer_of(peaks_of_batches)
    assert large == pytest.approx(4 * small, rel=0.3)


SAMPLE = (4, 84, 84)


def halved_until_it_fits(pipe: Connection) -> None:
    """The sizes that did not fit, and the one that did, in an address space with little room."""
    torch.set_num_threads(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 8, 4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * 20 * 20, 16),
    )

    def update(size: int) -> None:
        network.zero_grad()
        network(torch.zeros((size, *SAMPLE))).sum().backward()

    update(1)
    leave_room()
    size, failed, done = 4096, [], 0
    while done < 3:
        try:
            update(size)
            done += 1
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size == 1:
                raise
            release()
            failed.append(size)
            size //= 2
    pipe.send((failed, size))


@pytest.mark.process
def test_batches_are_halved_until_they_fit_when_memory_really_ends(
    answer_of: Callable[..., Any],
) -> None:
    failed, size = answer_of(halved_until_it_fits)
    assert failed[0] == 4096
    assert failed[-1] == 2 * size
    # A batch of so many needs at least its own observations.
    assert 1 <= size * 4 * int(np.prod(SAMPLE)) <= 64 * MIB


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_are_halved_until_they_fit_when_a_gpu_really_has_no_more() -> None:
    free, _ = torch.cuda.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        _ = [torch.empty(free // 3, dtype=torch.uint8, device="cuda") for _ in range(4)]
    assert is_out_of_memory(caught.value)
    del caught
    release()
    assert torch.cuda.memory_reserved() < free // 3
    torch.empty(free // 3, dtype=torch.uint8, device="cuda")
