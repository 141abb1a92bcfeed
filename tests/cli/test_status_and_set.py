"""`rtagent status`, `set` and `login`, against a small imitation of the daemon."""

from __future__ import annotations

import copy
import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rtagent.config import Config
from rtagent.live_config import live_values
from tests.cli.conftest import Run

TOKEN = "t" * 43
STATS = {
    "clock": {"uptime_s": 61.2, "ticks": 3655, "rate_hz": 59.7275, "target_rate_hz": 59.7275,
              "slips": 0},
    "actions": {"inaction_fraction": 0.25, "inaction_fraction_60s": 0.0125,
                "delay_ticks": {"mean": 6.0, "p99": 7.0}},
    "inference": {"processes": 2, "ready": 2, "algorithm": "adaptive", "estimate_ms": 82.0,
                  "recommended_processes": 5},
    "learning": {"updates": 0, "updates_per_s": None, "epsilon": 1.0, "processes": 2,
                 "order": "round-robin", "paused": False, "batch_size": 32,
                 "staleness": {"mean": None}},
    "replay": {"size": 3655, "capacity": 100_000, "bytes": 26 << 20},
    "r3": {"mode": "off", "memory_budget_bytes": None},
    "episodes": {"count": 0, "last_return": None, "mean_return_100": None},
}


class FakeDaemon:
    """Answers as the service does.

    Attributes:
        inference: settings of the inference processes.
        learning: settings of the learners.
        deadlines: settings of the deadline controller.
        figures: every figure.
        injected_ms: injected latency of its configuration.
        processes: inference processes of its configuration.
        last_error: of inference process 0.
        busy: what inference process 0 has been doing for long.
        seen: method, path and body of each authorized request.
    """

    def __init__(self) -> None:
        self.config = live_values(Config())
        self.figures = copy.deepcopy(STATS)
        self.last_error: str | None = None
        self.busy: str | None = None
        self.seen: list[tuple[str, str, Any]] = []
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._respond(None)

            def do_DELETE(self) -> None:
                self._respond(None)

            def do_GET(self) -> None:
                self._respond(None)

            def do_PATCH(self) -> None:
                length = int(self.headers["content-length"])
                self._respond(json.loads(self.rfile.read(length)))

            def _respond(self, body: Any) -> None:
                authorized = self.headers["authorization"] == f"Bearer {TOKEN}"
                status, document = (
                    daemon.answer(self.command, self.path, body)
                    if authorized
                    else (401, {"detail": "that token is wrong"})
                )
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and document."""
        self.seen.append((method, path, body))
        role = {"name": "inference 0", "role": "inference", "index": 0, "pid": 41,
                "state": "running", "restarts": 3, "last_error": self.last_error,
                "busy": self.busy}
        if method == "PATCH":
            if body.get("inference", {}).get("processes") == 10_000:
                return 422, {"detail": "processes = 10000: must be at most 256", "status": 422}
            for section, changes in body.items():
                self.config[section].update(changes)
        return {
            "/v1/status": (200, {"run_id": "r1", "state": "running", "roles": [role]}),
            "/v1/stats": (200, self.figures),
            "/v1/config": (200, self.config),
            "/v1/logins": (201, {"url": f"{self.url}?code=abc", "expires_in_s": 600.0}),
            "/v1/sessions": (200, {"ended": 2}),
        }.get(path, (500, b"not json"))


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A running daemon, announced in the configured state directory."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path))
    monkeypatch.delenv("RTAGENT_TOKEN", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    fake = FakeDaemon()
    thread = threading.Thread(target=fake.server.serve_forever, args=(0.01,))
    thread.start()
    _announce(tmp_path, fake.url, os.getpid())
    yield fake
    fake.server.shutdown()
    thread.join()
    fake.server.server_close()


def _announce(folder: Path, url: str, pid: int) -> None:
    note = {"url": url, "pid": pid, "run_id": "r1"}
    (folder / "daemon.json").write_text(json.dumps(note))
    (folder / "token").write_text(TOKEN + "\n")


@pytest.mark.usefixtures("daemon")
def test_status_shows_figures_and_processes(run: Run) -> None:
    shown = run("status")
    assert shown.code == 0
    assert "run r1: running at http://127.0.0.1:" in shown.out
    assert "1.25 % of the last 60 s" in shown.out.replace("%", " %")
    assert "inference 0" in shown.out
    assert "82.00 ms\n" in "\n".join(line.rstrip() for line in shown.out.splitlines())


def test_status_shows_the_daemons_verdicts(run: Run, daemon: FakeDaemon) -> None:
    acting = {"level": "bad", "headline": "Too late", "detail": "Inaction 80.0 %\x1b[2J"}
    daemon.figures["verdicts"] = {"acting": acting, "health": {"level": None}}
    shown = " ".join(run("status").out.split())
    assert "in time? Too late: Inaction 80.0 % [2J up 61 s" in shown


def test_status_says_what_a_process_is_busy_with(run: Run, daemon: FakeDaemon) -> None:
    assert re.search(r"inference 0 +41 +running", run("status").out)
    daemon.busy = "resetting"
    assert re.search(r"inference 0 +41 +resetting", run("status").out)


@pytest.mark.usefixtures("daemon")
def test_what_is_unknown_is_called_so(run: Run) -> None:
    assert "0 updates, unknown, epsilon 1.000" in run("status").out
    assert "last return unknown" in run("status").out


def test_injected_latency_is_named(run: Run, daemon: FakeDaemon) -> None:
    daemon.config["inference"]["injected_latency_ms"] = 82.0
    assert "injected latency: padded to 82 ms" in run("status").out
    assert json.loads(run("status", "--json").out)["injected_latency_ms"] == 82.0


def test_the_last_traceback_is_shown_whole(run: Run, daemon: FakeDaemon) -> None:
    daemon.last_error = 'Traceback:\n  File "policy.py", line 3\nValueError: [bold]no[/bold]'
    assert f"last error of inference 0:\n{daemon.last_error}\n" in run("status").out


def test_an_error_reaches_the_terminal_without_control_characters(
    daemon: FakeDaemon, run: Run
) -> None:
    daemon.last_error = "ValueError: \x1b]0;title\x07\x1b[2J\x9b31m gone\nand \u202emore"
    shown = run("status").out
    assert "ValueError:  ]0;title  [2J 31m gone\nand  more\n" in shown


def test_learners_replay_and_what_is_paused(run: Run, daemon: FakeDaemon) -> None:
    daemon.figures["learning"] |= {"staleness": {"mean": 1.25}, "paused": True}
    shown = " ".join(run("status").out.split())
    assert "learners 2, round-robin, staleness 1.25 updates, batch size 32 (paused)" in shown
    assert "replay 3655 of 100000 ticks, 26 MiB" in shown
    for absent in ("horizon", "deadlines", "memory"):
        assert f" {absent} " not in shown


def test_deadlines_and_memory_where_there_are_some(run: Run, daemon: FakeDaemon) -> None:
    daemon.figures["r3"] = {
        "mode": "step", "deadline_s": 30.0, "elapsed_s": 12.34, "data_budget": 10_000,
        "consumed": 4_000, "horizons": {"met": 3, "missed": 1},
        "episode_deadlines": {"met": 9, "missed": None}, "used_bytes": 850 << 20,
        "memory_budget_bytes": 900 << 20,
    }
    shown = " ".join(run("status").out.split())
    assert "horizon step: 12.3 s of 30 s used, 4000 samples of 10000" in shown
    assert "deadlines 3 met, 1 missed; of episodes: 9 met, unknown" in shown
    assert "memory 850 MiB used, budget 900 MiB" in shown


@pytest.mark.usefixtures("daemon")
def test_status_as_json(run: Run) -> None:
    report = json.loads(run("status", "--json").out)
    assert report["status"]["run_id"] == "r1"
    assert report["stats"] == STATS
    assert report["injected_latency_ms"] is None


@pytest.mark.parametrize(("setting", "value", "printed"), [
    ("inference.processes=4", 4, "2 -> 4"),
    ("inference.algorithm=maximum-time", "maximum-time", "adaptive -> maximum-time"),
    ("inference.action_deadline_ms = 33.5", 33.5, "none -> 33.5"),
    ("inference.action_deadline_ms=none", None, "none -> none"),
    ("inference.processes=auto", "auto", "2 -> auto"),
    ("learning.paused=true", True, "false -> true"),
    ("r3.data_budget=5000", 5000, "none -> 5000"),
])
def test_set_prints_old_and_new(
    run: Run, daemon: FakeDaemon, setting: str, value: Any, printed: str
) -> None:
    key = setting.partition("=")[0].strip()
    section, _, name = key.partition(".")
    done = run("set", setting)
    assert (done.code, done.out) == (0, f"{key}: {printed}\n")
    assert daemon.seen[-1] == ("PATCH", "/v1/config", {section: {name: value}})


def test_set_knows_every_live_setting(run: Run, daemon: FakeDaemon) -> None:
    for section, values in copy.deepcopy(daemon.config).items():
        for name, value in values.items():
            text = "none" if value is None else json.dumps(value).strip('"')
            assert run("set", f"{section}.{name}={text}").code == 0
            assert daemon.seen[-1][2] == {section: {name: value}}


@pytest.mark.usefixtures("daemon")
def test_set_as_json(run: Run) -> None:
    done = json.loads(run("set", "inference.processes=4", "--json").out)
    assert done == {"key": "inference.processes", "before": 2, "after": 4}


@pytest.mark.usefixtures("daemon")
def test_a_refusal_shows_the_daemon_s_reason(run: Run) -> None:
    refused = run("set", "inference.processes=10000")
    assert refused == (2, "", "rtagent: processes = 10000: must be at most 256\n")


def test_several_change_together_in_the_order_given(run: Run, daemon: FakeDaemon) -> None:
    settings = ("r3.deadline_s=30", "inference.processes=3", "r3.mode=step")
    done = json.loads(run("set", *settings, "--json").out)
    assert [each["key"] for each in done] == ["r3.deadline_s", "r3.mode", "inference.processes"]
    patches = [each for each in daemon.seen if each[0] == "PATCH"]
    changes = {"r3": {"deadline_s": 30, "mode": "step"}, "inference": {"processes": 3}}
    assert patches == [("PATCH", "/v1/config", changes)]


def test_a_bad_setting_among_several_changes_nothing(run: Run, daemon: FakeDaemon) -> None:
    for settings in (("inference.processes=3", "learning.gama=1"), ("r3.mode=", "r3.mode=step"),
                     ("r3.mode=off", "r3.mode=step")):
        assert run("set", *settings).code == 2
    assert daemon.seen == []


def test_status_tells_an_automatic_number_from_a_chosen_one(run: Run, daemon: FakeDaemon) -> None:
    assert "2 of 2 processes act" in run("status").out
    daemon.config["inference"]["processes"] = "auto"
    assert "2 of auto (2) processes act" in run("status").out


@pytest.mark.parametrize(("setting", "named"), [
    ("learning.gamma=0.9", "learning.gamma cannot be changed while the daemon runs; these can"),
    ("learning.gama=0.9", "learning.gama: unknown key; did you mean learning.gamma?"),
    ("inference.procesess=3", "did you mean inference.processes?"),
    ("inference.processes=", "expected SECTION.KEY=VALUE"),
    ("inference.processes", "expected SECTION.KEY=VALUE"),
])
def test_other_keys_are_refused_here(
    run: Run, daemon: FakeDaemon, setting: str, named: str
) -> None:
    refused = run("set", setting)
    assert refused.code == 2
    assert named in refused.err
    assert daemon.seen == []


@pytest.mark.usefixtures("daemon")
def test_a_wrong_token_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTAGENT_TOKEN", "x" * 43)
    assert run("status") == (2, "", "rtagent: that token is wrong\n")


def test_the_token_may_come_from_the_environment(
    run: Run, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").unlink()
    assert "cannot read the token" in run("status").err
    monkeypatch.setenv("RTAGENT_TOKEN", TOKEN)
    assert run("status").code == 0


@pytest.mark.parametrize("command", [("status",), ("set", "inference.processes=3")])
def test_no_daemon_is_one_line(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    refused = run(*command, "--state-dir", str(tmp_path))
    assert refused.code == 2
    assert refused.err == (
        f"rtagent: no daemon runs on the state directory {tmp_path}; start one: rtagent serve\n"
    )


def test_a_stale_note_is_recognised(run: Run, tmp_path: Path) -> None:
    _announce(tmp_path, "http://127.0.0.1:9/", 2**22 + 1)
    refused = run("status", "--state-dir", str(tmp_path))
    assert refused.code == 2
    assert f"the last one, pid {2**22 + 1}, is gone" in refused.err


def test_the_lock_decides_and_not_the_pid(run: Run, tmp_path: Path) -> None:
    _announce(tmp_path, "http://127.0.0.1:9/", os.getpid())
    (tmp_path / "lock").touch()
    refused = run("status", "--state-dir", str(tmp_path))
    assert f"the last one, pid {os.getpid()}, is gone" in refused.err


def test_a_port_that_nobody_answers(run: Run, tmp_path: Path) -> None:
    _announce(tmp_path, "http://127.0.0.1:9/", os.getpid())
    refused = run("status", "--state-dir", str(tmp_path))
    assert refused.code == 2
    assert "no daemon answers at http://127.0.0.1:9/" in refused.err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x", "url": "y"}', '{"pid": 1}'])
def test_a_damaged_note(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "daemon.json").write_text(text)
    refused = run("status", "--state-dir", str(tmp_path))
    assert refused.code == 2
    assert "daemon.json is damaged" in refused.err


def test_a_state_directory_that_others_can_write_is_not_believed(
    daemon: FakeDaemon, tmp_path: Path, run: Run
) -> None:
    tmp_path.chmod(0o777)
    ran = run("status")
    assert ran.code == 2
    assert "others can write into the state directory" in ran.err
    assert daemon.seen == []


def test_a_token_that_is_a_link_is_sent_to_nobody(
    daemon: FakeDaemon, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "token").rename(tmp_path / "elsewhere")
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    ran = run("status")
    assert ran.code == 2
    assert "token is a link" in ran.err
    assert daemon.seen == []


def test_login_prints_an_address(daemon: FakeDaemon, run: Run) -> None:
    assert run("login").out == f"{daemon.url}?code=abc\n"
    assert json.loads(run("login", "--json").out)["expires_in_s"] == 600.0
    assert daemon.seen[-1][:2] == ("POST", "/v1/logins")


def test_login_ends_all_sessions(daemon: FakeDaemon, run: Run) -> None:
    assert run("login", "--end-all").out == "2 ended\n"
    assert daemon.seen[-1][:2] == ("DELETE", "/v1/sessions")
