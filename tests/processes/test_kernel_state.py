"""Processes that compute, sleep, are stopped, or are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from rtagent.processes.kernel_state import is_computing, is_stopped
from tests.conftest import eventually


@pytest.mark.process
def test_a_stopped_process_is_told_from_one_that_sleeps() -> None:
    # Its name may be no text: the kernel cuts it after 15 bytes, in the middle of a character, too.
    body = (
        "import ctypes, time\n"
        "ctypes.CDLL(None).prctl(15, b'simulator \\xc3) T', 0, 0, 0)\n"
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            eventually(lambda: not is_computing(child.pid), "it sleeps")
            assert not is_stopped(child.pid)
            os.kill(child.pid, signal.SIGSTOP)
            eventually(lambda: is_stopped(child.pid), "it is stopped")
            os.kill(child.pid, signal.SIGCONT)
            eventually(lambda: not is_stopped(child.pid), "it goes on")
        finally:
            child.kill()


@pytest.mark.process
def test_a_process_that_computes_is_told_from_one_that_sleeps() -> None:
    # At idle priority it waits for a processor for most of the time, where others are busy. It
    # computes without the interpreter's lock, for which one thread would wait for the other.
    body = (
        "import hashlib, os, sys, threading, time\n"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        "over = []\n"
        "def compute():\n"
        "    while not over: hashlib.pbkdf2_hmac('sha256', b'', b'', 100_000)\n"
        "thread = threading.Thread(target=compute)\n"
        "thread.start(); print(flush=True)\n"
        "sys.stdin.read(); over.append(1); thread.join(); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            child.stdout.readline()
            assert is_computing(child.pid)
            child.stdin.close()
            eventually(lambda: not is_computing(child.pid), "it sleeps")
        finally:
            child.kill()


def test_no_process_is_neither_stopped_nor_computing() -> None:
    assert not is_stopped(None)
    assert not is_computing(None)


def test_a_process_that_ends_while_its_threads_are_listed_computes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "scandir", Mock(side_effect=FileNotFoundError))
    assert not is_computing(os.getpid())
