"""The fence on ARM64: what the compiler makes of it, and what an emulated processor does with it.

An emulator on x86-64 does not reorder more than x86-64 does, so what it runs shows that the code is
right on ARM64 in all but the order; the order is shown by the instructions here, and by the
simulated machine of `test_ordering.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rtagent.memory import ordering
from rtagent.memory.compiled import compiled_fence
from tests.installed import needs

MEMORY = Path(ordering.__file__).parent
LITMUS = Path(__file__).with_name("litmus.c")
TOOLS = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64-static")
COMPILE = ("aarch64-linux-gnu-gcc", "-std=gnu11", "-O3", "-Wall", "-Werror", "-pthread")
ROUNDS = {"message": 100_000, "gather": 100_000}
LIMIT_S = 180.0

needs_tools = needs(all(map(shutil.which, TOOLS)), "a compiler and an emulator for ARM64")


def compile_for_arm64(program: Path, *arguments: str | Path) -> Path:
    subprocess.run([*COMPILE, "-o", program, *arguments], check=True)
    return program


def barriers(program: Path, function: str | None = None) -> list[str]:
    """The instructions that order loads and stores, and calls that do; of one function, or all."""
    which = "-d" if function is None else f"--disassemble={function}"
    lines = subprocess.run(
        ["aarch64-linux-gnu-objdump", which, program],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    code = [line.split("\t")[2:] for line in lines if line.count("\t") >= 2]
    found = [" ".join(words).split("//")[0].strip() for words in code]
    return [each for each in found if each.startswith("dmb") or "_acq" in each or "_rel" in each]


@needs_tools
def test_the_fence_is_a_barrier_for_loads_and_stores(tmp_path: Path) -> None:
    program = compile_for_arm64(tmp_path / "fence.o", "-c", MEMORY / "fence.c")
    assert barriers(program) == ["dmb ish"]


@needs_tools
def test_gathering_has_its_barrier_for_loads_from_its_fence(tmp_path: Path) -> None:
    program = compile_for_arm64(tmp_path / "gather.o", "-c", MEMORY / "gather.c")
    assert barriers(program) == ["dmb ishld"]
    text = (MEMORY / "gather.c").read_text()
    assert text.count("__atomic_thread_fence(__ATOMIC_ACQUIRE);") == 1
    without = tmp_path / "without.c"
    without.write_text(text.replace("__atomic_thread_fence(__ATOMIC_ACQUIRE);", ""))
    program = compile_for_arm64(tmp_path / "without.o", "-c", without)
    assert barriers(program) == []


@needs_tools
@pytest.mark.process
@pytest.mark.parametrize("what", ROUNDS)
@pytest.mark.parametrize("reordered", [False, True], ids=["fenced", "reordered"])
def test_emulated_processor(tmp_path: Path, what: str, reordered: bool) -> None:
    program = compile_for_arm64(
        tmp_path / "litmus", "-static", *(["-DREORDERED"] if reordered else []),
        LITMUS, MEMORY / "fence.c", MEMORY / "gather.c",
    )
    answer = subprocess.run(
        ["qemu-aarch64-static", program, what, str(ROUNDS[what])],
        check=True, capture_output=True, text=True, timeout=LIMIT_S,
    ).stdout
    assert (int(answer) > 0) == reordered


def test_without_a_compiler_a_lock_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rules of ARM64 what comes before a release stays before it, what comes after an
    acquire stays after it, and a release stays before a later acquire; nothing else is ordered.
    """
    calls: list[str] = []

    class Lock:
        def acquire(self) -> None:
            calls.append("acquire")

        def release(self) -> None:
            calls.append("release")

    monkeypatch.setattr(threading, "Lock", Lock)
    ordering.fence_by_lock()
    assert "acquire" in calls[calls.index("release") :]


@needs_tools
@pytest.mark.parametrize(("function", "barrier"), [("sem_post", "_rel"), ("sem_trywait", "_acq")])
def test_the_calls_behind_a_lock_release_and_acquire(
    tmp_path: Path, function: str, barrier: str
) -> None:
    source = tmp_path / "lock.c"
    source.write_text(
        "#include <semaphore.h>\n"
        "int main(void) { sem_t s; sem_init(&s, 0, 0); sem_post(&s); return sem_trywait(&s); }\n"
    )
    program = compile_for_arm64(tmp_path / "lock", "-static", source)
    found = barriers(program, f"__new_{function}")
    assert any(barrier in each for each in found), found


@pytest.mark.parametrize("fence", [ordering.fence, ordering.fence_by_lock])
def test_a_fence_can_be_called_by_any_thread(fence: Callable[[], object]) -> None:
    started = threading.Barrier(4)

    def call(number: int) -> None:
        started.wait()
        for _ in range(2000):
            fence()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(call, range(4)))


def test_where_it_is_compiled_the_compiled_fence_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (compiled_fence() is None) == (ordering.fence is ordering.fence_by_lock)
    monkeypatch.setattr("rtagent.memory.compiled._library", lambda: None)
    assert compiled_fence() is None
