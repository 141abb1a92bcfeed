"""`rtagent status`, `set` and `login`, against the real service on an imitated daemon."""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rtagent.config import Config
from rtagent.live_config import live_values
from rtagent.supervisor.state_dir import StateDir
from tests.cli.conftest import Refused, Run, announce
from tests.service.conftest import TOKEN, FakeBackend, RunningService


def words(run: Run) -> str:
    """What `rtagent status` shows, without its layout."""
    return " ".join(run("status").out.split())


def test_status_shows_figures_and_processes(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    acting = backend.figures["actions"]
    backend.figures["replay"]["bytes"] = 65_000
    acting |= {"inaction_fraction_60s": 0.0125, "inaction_fraction_window": 0.8}
    backend.figures["episodes"]["last_return"] = None
    backend.report["roles"][1]["restarts"] = 3
    shown = words(run)
    for part in (
        "run 20250101-abcd: running at http://127.0.0.1:", "in time? Too late: acting on 20.0 %",
        "1.25% of the last 60 s, 0.44% of the run", "inference time 82.00 ms learning",
        "4100 updates, 41.3 per second, epsilon 0.310", "last return unknown",
        "learners 1, round-robin, staleness unknown, batch size 32 episodes",
        "replay 18000 of 100000 ticks, 63 KiB", "2 of 2 processes run",
        "inference 0 1000 running 3 ",
    ):
        assert part in shown, part
    for absent in ("horizon", "deadlines", "memory", "last error", "injected", "cluster"):
        assert f" {absent} " not in shown


@pytest.mark.usefixtures("service")
def test_no_authority_is_loaded_for_a_daemon_without_tls(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of certificates were read before a command asked the daemon."""
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a certificate was loaded")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", refuse)
    assert run("status").code == 0


@pytest.mark.parametrize(("section", "figures", "said"), [
    ("inference", {"estimate_ms": 0.0042}, "inference time 0.0042 ms"),
    ("actions", {"inaction_fraction_60s": 0.0, "inaction_fraction": 3e-6},
     "0.00% of the last 60 s, 0.01% of the run"),
    ("actions", {"from_chunk": 0.002}, "0.20% of ticks by later actions of chunks"),
    ("cluster", {"connected": False, "since_s": 12.3, "reason": "no resource\x1b[2J learner"},
     "cluster cut for 12 s: no resource [2J learner"),
])
def test_status_shows_what_is_little_and_what_there_may_be(
    run: Run, backend: FakeBackend, section: str, figures: dict[str, Any], said: str
) -> None:
    backend.figures.setdefault(section, {}).update(figures)
    assert said in words(run)


def test_status_shows_what_is_set_and_out_of_the_ordinary(run: Run, backend: FakeBackend) -> None:
    backend.report["roles"][1] |= {"busy": "resetting"}
    backend.live["inference"].update(injected_latency_ms=82.0, processes="auto")
    # Their mean is more than that.
    backend.figures["inference"]["injected_latency_distribution"] = "outliers"
    backend.figures["learning"] |= {"staleness": {"mean": 1.25, "max": 2}, "paused": True}
    backend.figures["r3"] |= {
        "mode": "step", "deadline_s": 86400.25, "elapsed_s": 12.34, "data_budget": 10_000,
        "consumed": 4_000, "horizons": {"met": 3, "missed": 1},
        "episode_deadlines": {"met": 9, "missed": None}, "used_bytes": 850 << 20,
        "memory_budget_bytes": 900 << 20,
    }
    shown = words(run)
    for part in (
        "inference 0 1000 resetting", "injected latency: padded to 82 ms, outliers)",
        "2 of auto (2) processes run", "staleness 1.25 updates, batch size 32 (paused)",
        "horizon step: 12.3 s of 86400.25 s used, 4000 samples of 10000",
        "deadlines 3 met, 1 missed; of episodes: 9 met, unknown",
        "memory 850 MiB used, budget 900 MiB",
    ):
        assert part in shown, part
    report = run("status", "--json").document()
    assert (report["injected_latency_ms"], report["automatic_processes"]) == (82.0, True)


def test_the_last_traceback_is_shown_whole_without_control_characters(
    run: Run, backend: FakeBackend
) -> None:
    error = 'Traceback:\n  File "policy.py"\nValueError: [bold]no[/bold]'
    backend.report["roles"][1]["last_error"] = error
    assert f"last error of inference 0:\n{error}\n" in run("status").out
    backend.report["roles"][1]["last_error"] = "E: \x1b]0;title\x07\x1b[2J\x9b31m\nand \u202emore"
    assert "E:  ]0;title  [2J 31m\nand  more\n" in run("status").out


def test_status_as_json(run: Run, backend: FakeBackend) -> None:
    report = run("status", "--json").document()
    assert report["status"]["run_id"] == "20250101-abcd"
    assert report["stats"].pop("verdicts")
    assert report["stats"] == backend.figures
    assert report["injected_latency_ms"] is None


@pytest.mark.parametrize(("setting", "value", "printed"), [
    ("inference.processes=4", 4, "2 -> 4"),
    ("inference.algorithm=maximum-time", "maximum-time", "adaptive -> maximum-time"),
    ("inference.action_deadline_ms = 33.5", 33.5, "none -> 33.5"),
    ("inference.action_deadline_ms=none", None, "already none"),
    ("inference.processes=auto", "auto", "2 -> auto"),
    ("learning.paused=true", True, "false -> true"),
    ("r3.data_budget=5000", 5000, "none -> 5000"),
    ("r3.deadline_s=30.0", 30.0, "none -> 30"),
    ("learning.learning_rate=0.00012345678", 0.00012345678, "0.0005 -> 0.00012345678"),
])
def test_set_prints_old_and_new(
    run: Run, backend: FakeBackend, setting: str, value: Any, printed: str
) -> None:
    key = setting.partition("=")[0].strip()
    section, _, name = key.partition(".")
    assert run("set", setting) == (0, f"{key}: {printed}\n", "")
    assert backend.commands == [(section, {name: value})]
    assert backend.askers == ["rtagent set"]


def test_set_knows_every_live_setting(run: Run, backend: FakeBackend) -> None:
    for section, values in live_values(Config()).items():
        for name, value in values.items():
            text = "none" if value is None else json.dumps(value).strip('"')
            assert run("set", f"{section}.{name}={text}").code == 0
            assert backend.commands[-1] == (section, {name: value})


@pytest.mark.usefixtures("service")
def test_set_as_json(run: Run) -> None:
    done = run("set", "inference.processes=4", "--json").document()
    assert done == {"key": "inference.processes", "before": 2, "after": 4}


def test_several_change_together_in_the_order_given(run: Run, backend: FakeBackend) -> None:
    settings = ("r3.deadline_s=30", "inference.processes=3", "r3.mode=step", "r3.data_budget=9")
    done = run("set", *settings, "--json").document()
    assert [each["key"] for each in done] == [
        "r3.deadline_s", "r3.mode", "r3.data_budget", "inference.processes"
    ]
    assert dict(backend.commands) == {
        "r3": {"deadline_s": 30, "mode": "step", "data_budget": 9}, "inference": {"processes": 3},
    }


@pytest.mark.parametrize(("settings", "named"), [
    ("learning.gamma=0.9", "learning.gamma cannot be changed while the daemon runs; these can"),
    ("learning.gama=0.9", "learning.gama: unknown key; did you mean learning.gamma?"),
    ("foo.bar=1", "foo.bar: unknown key; `rtagent config schema` lists all keys"),
    ("inference.procesess=3", "did you mean inference.processes?"),
    ("inference.processes=", "expected SECTION.KEY=VALUE"),
    ("inference.processes", "expected SECTION.KEY=VALUE"),
    ("inference.processes=3 learning.gama=1", "unknown key"),
    ("r3.mode= r3.mode=step", "expected SECTION.KEY=VALUE"),
    ("r3.mode=off r3.mode=step", "r3.mode is named twice"),
    ("inference.processes=10000", "processes"),
    ("learning.learning_rate=NaN", 'learning.learning_rate = "NaN": '),
    ("learning.learning_rate=1e999", 'learning.learning_rate = "1e999": '),
    ('learning.order="\\ud800"', "learning.order = "),
    ("learning.order=first\udcff", "is not UTF-8"),
    (f"env.default_action={'[' * 5000}", "env.default_action = "),
])
def test_what_cannot_be_set_changes_nothing(
    refused: Refused, backend: FakeBackend, settings: str, named: str
) -> None:
    assert named in refused("set", *settings.split())
    assert backend.commands == []


@pytest.mark.usefixtures("service")
def test_the_token_may_come_from_the_environment(
    run: Run, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").unlink()
    assert "cannot read the token" in refused("status")
    monkeypatch.setenv("RTAGENT_TOKEN", TOKEN)
    assert run("status").code == 0
    monkeypatch.setenv("RTAGENT_TOKEN", "x" * 43)
    assert "the daemon refuses the token: RTAGENT_TOKEN has to be" in refused("status")


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("token", ["a\u00fc", "a\nb", "a\udcff", " ", "a "])
def test_a_token_that_no_header_can_carry_is_one_line(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    (tmp_path / "token").write_text("a\nb")
    assert f"{tmp_path / 'token'} holds no usable token" in refused("status")
    (tmp_path / "token").write_text("\n")
    assert f"{tmp_path / 'token'} holds no usable token" in refused("status")
    monkeypatch.setenv("RTAGENT_TOKEN", token)
    assert "RTAGENT_TOKEN holds no usable token" in refused("status")


@pytest.mark.parametrize(("alive", "lock", "said"), [
    (False, False, "(the last one, pid {pid}, is gone, or the directory was moved while"),
    # The lock decides: the pid may be another's now.
    (True, True, "(the last one, pid {pid}, is gone, or the directory was moved while"),
    (True, False, "no daemon answers at http://127.0.0.1:9/"),
])
def test_a_stale_note_is_recognised(
    refused: Refused, tmp_path: Path, alive: bool, lock: bool, said: str
) -> None:
    pid = os.getpid() if alive else 2**22 + 1
    announce(tmp_path, "http://127.0.0.1:9/", pid)
    if lock:
        (tmp_path / "lock").touch()
    assert said.format(pid=pid) in refused("status", "--state-dir", str(tmp_path))


def test_a_run_without_a_service_is_not_called_none(refused: Refused, tmp_path: Path) -> None:
    """As `rtagent train` and `Runtime` hold it; or somebody has removed the daemon's note."""
    folder = tmp_path / "state"
    held = StateDir(folder)
    said = refused("status", "--state-dir", str(folder))
    assert f"{folder} is held by a run that cannot be asked" in said
    assert "has to be started again" in said
    held.release()
    assert "no daemon runs on" in refused("status", "--state-dir", str(folder))


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"pid": "x", "url": "y"}', '{"pid": 1}', "[" * 4000,
    '{"pid": Infinity, "url": "http://127.0.0.1:9/"}', '{"pid": 1, "url": "http://127.0.0.1:x/"}',
    '{"pid": 1, "url": "http://127.0.0.1:9/", "certificate": 5}',
    '{"pid": 1, "url": ""}', '{"pid": 1, "url": 7}', '{"pid": 1, "url": "ftp://127.0.0.1:9/"}',
])
def test_a_damaged_note(refused: Refused, tmp_path: Path, text: str) -> None:
    (tmp_path / "daemon.json").write_text(text)
    assert "daemon.json is damaged" in refused("status", "--state-dir", str(tmp_path))


def test_notes_that_others_can_write_are_not_believed(
    service: RunningService, tmp_path: Path, refused: Refused
) -> None:
    service.stop()
    tmp_path.chmod(0o777)
    assert "others can write into the state directory" in refused("status")
    tmp_path.chmod(0o700)
    (tmp_path / "token").rename(tmp_path / "elsewhere")
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    # Refused before anybody is asked: nobody listens.
    assert "token is a link" in refused("status")


def test_login_prints_an_address_and_ends_all_sessions(run: Run, service: RunningService) -> None:
    url = f"http://127.0.0.1:{service.port}/?code="
    assert run("login").out.startswith(url)
    made = run("login", "--json").document()
    assert made["url"].startswith(url)
    assert made["expires_in_s"] == 600.0
    assert re.fullmatch(r"\d+ ended\n", run("login", "--end-all").out)


@pytest.fixture(params=["{}", "[]", "<html>", "[" * 100_000], ids=lambda said: said[:6])
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a server that is no daemon, although a daemon's note names it; its state
    directory is `tmp_path`."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(request.param.encode())

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        # It ends when it looks whether it shall.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        announce(tmp_path, address)
        yield address
        server.shutdown()
        thread.join(30.0)


@pytest.mark.parametrize("command", [
    "login", "login --end-all", "set inference.processes=3", "events", "watch --once",
])
def test_a_server_that_is_no_daemon_is_one_line(
    refused: Refused, tmp_path: Path, stranger: str, command: str
) -> None:
    said = refused(*command.split(), "--state-dir", str(tmp_path))
    assert f"the answer of {stranger}v1/" in said
    assert "that is no daemon of rtagent" in said
