"""`rtagent doctor`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Callable
from errno import ENOENT, EPERM
from pathlib import Path

import pytest

from rtagent import load_config
from rtagent.cli import doctor, doctor_machine, doctor_memory
from rtagent.cli.jitter import PROGRESS_EVERY_S, Jitter, measure_jitter
from rtagent.cli.verdicts import show
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.memory.usage import Level
from rtagent.processes import scheduling
from rtagent.processes.launch import module_command
from rtagent.testing import Check
from tests.cli.conftest import Run

NAMES = ["operating system", "Python", "compiled code", "cores", "load", "GPUs", "CPU quota",
         "SCHED_FIFO", "memlock limit", "memory", "shared memory", "overcommit", "swap",
         "CPU governor", "/proc/<pid>/fd", "state directory", "jitter", "wake-ups", "CPU sleep"]


def jitter(**changes: float) -> Jitter:
    """What is measured on a machine that wakes up well."""
    found = Jitter(
        realtime=True, ticks=600, p50=2.0, p99=10.0, max=30.0,
        sleep_p50=60.0, sleep_p99=120.0, ahead=140.0, share=0.005,
    )
    return {**found, **changes}  # type: ignore[typeddict-item]


@pytest.mark.process
def test_json_has_every_check(run: Run) -> None:
    done = run("doctor", "--seconds", "0.3", "--json")
    report = json.loads(done.out)
    assert [check["name"] for check in report] == NAMES
    assert all(check["verdict"] in ("ok", "warn", "bad") for check in report)
    assert all(check["advice"] for check in report if check["verdict"] != "ok")
    assert done.code == int(any(check["verdict"] == "bad" for check in report))


def test_something_bad_is_told_and_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Check("memory", "bad", "3 MiB available", "buy some")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: bad,))
    monkeypatch.setattr(doctor, "measure_jitter", lambda *told: jitter())
    done = run("doctor")
    assert done.code == 1
    for part in ("3 MiB available", "buy some", "p50 2, p99 10, max 30 us late (600 ticks,"):
        assert part in " ".join(done.out.split())


def test_the_state_directory_may_be_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr(doctor, "measure_jitter", lambda *told: jitter())
    done = run("doctor", "--state-dir", str(tmp_path / "007"), "--set", "run.keep_runs=7")
    assert f"{tmp_path / '007'}: runs 0 of 7" in done.out, done.err


def test_a_check_that_the_system_prevents_is_bad_and_ends_no_other(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden() -> list[Level]:
        raise UserError("/proc/meminfo does not say it: mount /proc")

    def absent(proc: Path) -> dict[str, int]:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), f"{proc}/meminfo")

    def forbidden(*_: object) -> int:
        raise PermissionError(EPERM, os.strerror(EPERM))

    monkeypatch.setattr(doctor_memory, "memory_levels", hidden)
    monkeypatch.setattr(doctor_memory, "meminfo", absent)
    monkeypatch.setattr(os, "memfd_create", forbidden)
    monkeypatch.setattr(doctor, "CHECKS", (
        doctor_memory.memory, doctor_memory.swap, doctor_machine.descriptor_access,
        doctor_machine.python,
    ))
    monkeypatch.setattr(doctor, "measure_jitter", lambda *told: jitter())
    memory, swap, access, python, *_ = run("doctor", "--json").document(1)
    assert memory == {
        "name": "memory", "verdict": "bad", "found": "/proc/meminfo does not say it",
        "advice": "mount /proc",
    }
    # An error of the system ended the report, and if it named no file, with a traceback.
    assert (swap["name"], swap["verdict"]) == ("swap", "bad")
    assert swap["found"] == "/proc/meminfo: No such file or directory"
    assert (access["verdict"], access["found"]) == ("bad", "Operation not permitted")
    assert "sandbox" in swap["advice"]
    assert python["name"] == "Python"


@pytest.mark.parametrize("raised", [
    PermissionError(EPERM, "no fork"),
    UserError("no process measures: no fork; look at the limits"),
])
def test_a_jitter_that_cannot_be_measured_ends_no_other_check(
    run: Run, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    """None of them was shown, on the machine that needed them most."""
    def refuse(*_: object) -> Jitter:
        raise raised

    monkeypatch.setattr(doctor, "CHECKS", (doctor_machine.python,))
    monkeypatch.setattr(doctor, "measure_jitter", refuse)
    python, *_, last = run("doctor", "--json").document(1)
    assert (python["name"], last["name"], last["verdict"]) == ("Python", "jitter", "bad")
    assert "no fork" in f"{last['found']} {last['advice']}"
    assert "limit" in last["advice"]


@pytest.mark.process
def test_the_jitter_tells_how_far_it_is() -> None:
    told: list[float] = []
    measured = measure_jitter(3 * PROGRESS_EVERY_S, told.append)
    assert 0.0 < measured["sleep_p50"] <= measured["sleep_p99"]
    assert 0.0 <= measured["p50"] <= measured["p99"] <= measured["max"]
    assert measured["ahead"] > 0.0
    assert 0.0 <= measured["share"] < 1.0
    assert len(told) >= 2
    assert told == sorted(told)


@pytest.mark.process
def test_nothing_is_measured_for_a_command_that_is_gone() -> None:
    """Killed, it left a process of realtime priority behind, for up to an hour."""
    command, variables = module_command("rtagent.cli.jitter")
    parent = "0"
    measuring = subprocess.run([*command, "3600", parent], env=variables, timeout=120, check=False)
    assert measuring.returncode == 1


def test_gpus_are_named_and_torch_must_be_built_for_them(tmp_path: Path) -> None:
    assert doctor_machine.gpus(tmp_path).found.startswith("none")
    for number, name in enumerate(("NVIDIA H100", "NVIDIA L4")):
        file = tmp_path / f"driver/nvidia/gpus/0000:0{number}:00.0/information"
        file.parent.mkdir(parents=True)
        file.write_text(f"Model: \t\t {name}\nIRQ:   \t\t 26\n")
    good, bad = (doctor_machine.gpus(tmp_path, torch) for torch in ("2.6.0+cu126", "2.6.0+cpu"))
    assert (good.found, good.verdict) == ("NVIDIA H100, NVIDIA L4", "ok")
    assert bad.verdict == "warn"
    assert bad.advice.endswith("torch==2.6.0")


def test_what_the_state_directory_holds_and_may_hold(tmp_path: Path) -> None:
    config = parse_config({"run": {"state_dir": str(tmp_path), "keep_runs": 7, "runs_mb": 9}})
    assert "runs 0 of 7, 0 of 9 MiB" in doctor_machine.state_directory(config).found
    for name in ("runs/0000000a", "runs/0000000b", "checkpoints", "replay"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs" / "0000000a" / "events.jsonl").write_bytes(bytes(3 << 20))
    name = "checkpoint-000001-000000000700.safetensors"
    (tmp_path / "checkpoints" / name).write_bytes(bytes(2 << 20))
    (tmp_path / "replay" / "chunk").write_bytes(bytes(1 << 20))
    check = doctor_machine.state_directory(config)
    assert check.verdict == "ok"
    for part in (str(tmp_path), "runs 2 of 7, 3 of 9 MiB", "checkpoints 1 of 3, 2 of 16384 MiB",
                 "events 16 MiB", "TensorBoard 1024 MiB", "replay 1 MiB"):
        assert part in check.found, part


def open_to_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize(("prepare", "found", "advice"), [
    (open_to_others, "others can write into the state directory", "chmod go-w"),
    (Path.touch, "Not a directory", "choose another with --state-dir"),
    (lambda path: path.symlink_to(path), "Too many levels of symbolic links", "choose another"),
])
def test_a_state_directory_that_cannot_be_used_is_bad_and_ends_no_other_check(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    prepare: Callable[[Path], None], found: str, advice: str,
) -> None:
    prepare(tmp_path / "state")
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr(doctor, "measure_jitter", lambda *told: jitter())
    done = run("doctor", "--json", "--state-dir", str(tmp_path / "state"))
    check, after, *_ = done.document(1)
    assert (check["name"], check["verdict"], after["name"]) == ("state directory", "bad", "jitter")
    assert found in check["found"]
    assert advice in check["advice"]


def test_a_state_directory_in_no_home_is_bad_and_ends_no_other_check(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr(doctor, "measure_jitter", lambda *told: jitter())
    check, after, *_ = run("doctor", "--json", "--set", "run.state_dir=~nobody-of-this").document(1)
    assert (check["name"], check["verdict"], after["name"]) == ("state directory", "bad", "jitter")
    assert check["found"] == "run.state_dir = '~nobody-of-this': there is no such home directory"
    assert check["advice"] == "set HOME, or choose another with --state-dir"


@pytest.mark.parametrize("there", [True, False])
def test_a_state_directory_that_cannot_be_written_is_bad(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    folder = tmp_path / "state" / "of" / "a run"
    if there:
        folder.mkdir(parents=True)
    asked: list[Path] = []
    # As of a read-only file system, where not even root may write.
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    check = doctor_machine.state_directory(load_config(overrides=[f"run.state_dir={folder}"]))
    assert (check.verdict, check.found) == ("bad", f"{folder}: cannot be written")
    assert asked == [folder if there else tmp_path]


def levels(*available_mib: int) -> list[Level]:
    return [Level(f"level {mib}", 16_000 << 20, mib << 20) for mib in available_mib]


@pytest.mark.parametrize(
    ("mib", "verdict"), [((100,), "bad"), ((1000,), "warn"), ((8000,), "ok"), ((8000, 100), "bad")],
)
def test_memory(monkeypatch: pytest.MonkeyPatch, mib: tuple[int, ...], verdict: str) -> None:
    monkeypatch.setattr(doctor_memory, "memory_levels", lambda: levels(*mib))
    check = doctor_memory.memory()
    assert check.verdict == verdict
    # It is the tightest that counts.
    assert f"level {min(mib)}" in check.found
    assert ("replay.capacity" in check.advice) == (verdict != "ok")


@pytest.mark.parametrize(("mib", "error", "verdict", "said"), [
    ((8000,), None, "ok", "3 MiB of memfd reserved and given back"),
    ((8000,), UserError("no memory for doctor: File too large"), "bad", "File too large"),
    ((8000,), PermissionError(1, "not permitted"), "bad", "not permitted"),
    # The last memory is not reserved for a try.
    ((8000, 900), AssertionError(), "warn", "not tried"),
])
def test_shared_memory_is_reserved_and_given_back(
    monkeypatch: pytest.MonkeyPatch, mib: tuple[int, ...], error: Exception | None, verdict: str,
    said: str,
) -> None:
    def refuse(name: str, size: int) -> None:
        assert error is not None
        raise error

    monkeypatch.setattr(doctor_memory, "replay_bytes", lambda: 3 << 20)
    monkeypatch.setattr(doctor_memory, "memory_levels", lambda: levels(*mib))
    if error is not None:
        monkeypatch.setattr(doctor_memory, "Arena", refuse)
    check = doctor_memory.shared_memory()
    assert check.verdict == verdict
    assert said in check.found
    assert ("memfd_create" in check.advice) == (verdict == "bad")


def proc(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("total", "free", "verdict"), [(0, 0, "ok"), (1000, 950, "ok"), (1000, 500, "warn")]
)
def test_swap(tmp_path: Path, total: int, free: int, verdict: str) -> None:
    root = proc(tmp_path, {"meminfo": f"SwapTotal: {total} kB\nSwapFree: {free} kB\n"})
    assert doctor_memory.swap(root).verdict == verdict


@pytest.mark.parametrize(
    ("mode", "promised_mib", "verdict"),
    [(0, 7900, "ok"), (1, 7900, "ok"), (2, 1000, "ok"), (2, 7900, "warn")],
)
def test_overcommit(tmp_path: Path, mode: int, promised_mib: int, verdict: str) -> None:
    promised = f"CommitLimit: {8000 << 10} kB\nCommitted_AS: {promised_mib << 10} kB\n"
    root = proc(tmp_path, {"meminfo": promised, "sys/vm/overcommit_memory": f"{mode}\n"})
    check = doctor_memory.overcommit(root)
    assert check.verdict == verdict
    assert ("vm.overcommit_memory=0" in check.advice) == (verdict == "warn")


@pytest.mark.parametrize(("files", "cgroup", "found"), [
    ({}, "0::/", "none"),
    ({"outer/cpu.max": "max 100000"}, "0::/outer/inner", "none"),
    ({"outer/cpu.max": "150000 100000"}, "0::/outer/inner", "1.5 cores"),
    ({"outer/cpu.max": "150000 100000", "outer/inner/cpu.max": "400000 100000"}, "0::/outer/inner",
     "1.5 cores"),
    ({"cpu/box/cpu.cfs_quota_us": "50000", "cpu/box/cpu.cfs_period_us": "100000"},
     "5:cpu,cpuacct:/box\n0::/", "0.5 cores"),
    ({"cpu/box/cpu.cfs_quota_us": "-1", "cpu/box/cpu.cfs_period_us": "100000"}, "5:cpu:/box",
     "none"),
])
def test_cpu_quota(tmp_path: Path, files: dict[str, str], cgroup: str, found: str) -> None:
    groups = proc(tmp_path / "cgroup", files)
    own = proc(tmp_path / "proc", {"self/cgroup": f"{cgroup}\n"})
    check = doctor_machine.cpu_quota(groups, own)
    assert check.found.startswith(found)
    assert check.verdict == ("ok" if found == "none" else "warn")


@pytest.mark.parametrize(("programs", "verdict"), [(0.4, "ok"), (3.9, "ok"), (15.2, "warn")])
def test_a_load_that_leaves_learners_no_core_is_told(
    monkeypatch: pytest.MonkeyPatch, programs: float, verdict: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (programs, 0.0, 0.0))
    check = doctor_machine.load()
    assert check.verdict == verdict
    assert f"{programs} programs" in check.found
    assert ("learners" in check.advice) == (verdict == "warn")


def test_no_realtime_permission_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "fifo_permitted", lambda: False)
    check = doctor_machine.realtime_priority()
    assert check.verdict == "warn"
    assert "rtprio" in check.advice


@pytest.mark.parametrize(("limit", "verdict"), [
    (resource.RLIM_INFINITY, "ok"), (8 << 20, "warn"), (300 << 20, "warn"),
])
def test_a_limit_of_locked_memory_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, limit: int, verdict: str
) -> None:
    monkeypatch.setattr(scheduling, "_capable", lambda capability: False)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert doctor_machine.locked_memory().verdict == verdict


def test_an_old_kernel_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine.platform, "release", lambda: "3.10.0-1160.el7")
    assert doctor_machine.operating_system().verdict == "bad"


@pytest.mark.parametrize(("governors", "verdict"), [
    ([], "ok"), (["performance"], "ok"), (["powersave"], "warn"), (["performance", None], "ok"),
])
def test_cpu_governor(tmp_path: Path, governors: list[str | None], verdict: str) -> None:
    for number, governor in enumerate(governors):
        folder = tmp_path / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        if governor is None:
            # As of a core that is off, it cannot be read; that ended the doctor.
            (folder / "scaling_governor").mkdir()
        else:
            (folder / "scaling_governor").write_text(f"{governor}\n")
    assert doctor_machine.cpu_governor(tmp_path).verdict == verdict


def test_what_a_policy_server_says_is_no_command_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show([Check("policy server", "warn", "the server says: \x1b]0;mine\x07", "ask \x9b2J")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
