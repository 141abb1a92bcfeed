"""A daemon made of plain values, and clients of its service."""

from __future__ import annotations

import copy
import functools
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from rtagent.config import Config
from rtagent.live_config import live_values, with_values
from service.app import create_app
from service.daemon.png import Picture
from service.http.binding import bind
from service.http.login import cookie_name
from service.http.problems import MEDIA_TYPE
from service.http.settings import Settings
from service.process import serve
from service.routes import openapi
from tests.ports import free_port

TOKEN = "t" * 20 + "0123456789abcdef" * 2
WITH_TOKEN = f"Authorization: Bearer {TOKEN}"
PORT = 8008
BASE = f"http://127.0.0.1:{PORT}"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def example_stats() -> dict[str, Any]:
    """Figures of a healthy run."""
    worker = {"state": "running", "inferences": 5000, "weights_version": 41, "restarts": 0,
              "latency_ms": {"p50": 81.9, "p99": 84.2, "max": 91.0}}
    return {
        "clock": {"uptime_s": 301.5, "ticks": 18_000, "rate_hz": 59.7274,
                  "target_rate_hz": 59.7275, "drift_ms": 0.08, "slips": 0,
                  "window_s": 60.0,
                  "lateness_us": {"p50": 12.0, "p99": 95.0, "p999": 310.0, "max": 820.0}},
        "actions": {"agent": 17_800, "reused": 120, "default": 80, "inaction_fraction": 0.0044,
                    "strict_inaction_fraction": 0.0111, "inaction_fraction_60s": 0.002,
                    "inaction_fraction_window": 0.002,
                    "overwritten": 3, "interaction_ms": {"mean": 16.8, "cv": 0.06},
                    "disagreement": None,
                    "delay_ticks": {"mean": 5.2, "p50": 5.0, "p99": 6.0, "max": 9.0}},
        "inference": {"processes": 2, "ready": 2, "algorithm": "adaptive", "estimate_ms": 82.0,
                      "recommended_processes": 5, "injected_latency_ms": 0.0,
                      "workers": [{"id": i, "pid": 1200 + i, **copy.deepcopy(worker)}
                                  for i in range(2)]},
        "learning": {"processes": 1, "order": "round-robin", "paused": False, "updates": 4100,
                     "updates_per_s": 41.3, "samples_consumed": 131_200, "batch_size": 32,
                     "loss": 0.0123, "epsilon": 0.31, "staleness": {"mean": None, "max": None},
                     "dropped": 0, "skipped": 0, "weights_version": 41, "workers": []},
        "replay": {"capacity": 100_000, "size": 18_000, "bytes": 127_000_000,
                   "bytes_per_transition": 7056.0, "memory_budget_bytes": None},
        "r3": {"mode": "off", "deadline_s": None, "data_budget": None, "elapsed_s": None,
               "consumed": None, "time_ratio": None, "data_ratio": None, "batch_cap": None,
               "used_bytes": None, "memory_budget_bytes": None,
               "horizons": {"met": None, "missed": None},
               "episode_deadlines": {"met": None, "missed": None}},
        "regret": {"inaction": {"value": 160.0, "kind": "bound", "unit": "reward"},
                   "delay": {"value": None, "kind": "unknown", "unit": "reward"},
                   "learning": {"value": None, "kind": "unknown", "unit": "reward"}},
        "episodes": {"count": 37, "faults": 0, "last_return": 4.0, "mean_return_100": 2.37,
                     "mean_length_100": 486.0},
    }


def example_timeline(
    now_ms: float = 301_372.0, seconds: float = 3.0, processes: int = 2, lost: int = 599,
    tick_ms: float = 1e3 / 59.7275,
) -> dict[str, Any]:
    """Processes that take turns; every `lost`-th tick executes the default behaviour."""
    newest = int(now_ms / tick_ms)
    ticks = range(newest - int(seconds * 1e3 / tick_ms), newest + 1)
    kept = [tick for tick in ticks if tick % lost]

    def of_kept(values: Callable[[int], Any], otherwise: Any = None) -> list[Any]:
        return [values(tick) if tick % lost else otherwise for tick in ticks]

    return {
        "now_ms": now_ms, "tick_ms": tick_ms,
        "ticks": {
            "tick": list(ticks), "at_ms": [tick * tick_ms for tick in ticks],
            "source": of_kept(lambda tick: "agent", "default"),
            "worker": of_kept(lambda tick: tick % processes),
            "delay": of_kept(lambda tick: processes),
            "position": of_kept(lambda tick: 0),
            "action": of_kept(lambda tick: "LEFT", "NOOP"),
            "components": of_kept(lambda tick: None),
        },
        "bars": {
            "worker": [tick % processes for tick in kept],
            "start_ms": [(tick - processes) * tick_ms for tick in kept],
            "end_ms": [(tick - 0.3) * tick_ms for tick in kept], "tick": kept,
        },
        "workers": [{"id": index, "state": "running"} for index in range(processes)],
    }


def role(name: str, index: int, **changes: Any) -> dict[str, Any]:
    """One process of the status."""
    title = f"{name} {index}" if name in ("inference", "learner") else name
    return {"name": title, "role": name, "index": index, "pid": 1000 + index, "state": "running",
            "busy": None, "restarts": 0, "last_error": None, **changes}


class FakeBackend:
    """A daemon whose answers a test sets."""

    def __init__(self) -> None:
        self.figures = example_stats()
        self.report: dict[str, Any] = {
            "run_id": "20250101-abcd", "state": "running", "version": "0.1.0", "url": BASE,
            "pid": 999, "started_s": 71.5, "events": [], "config": Config().model_dump(mode="json"),
            "roles": [role("environment", 0), role("inference", 0), role("inference", 1),
                      role("learner", 0), role("service", 0)],
        }
        self.picture: Picture | None = np.arange(84 * 84, dtype=np.uint32).reshape(84, 84).astype(
            np.uint8
        )
        self.live = live_values(Config())
        self.files: list[dict[str, Any]] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.readiness = (True, "ready")
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.askers: list[str] = []
        self.reported: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.drawn: dict[str, Any] = example_timeline()
        self.failure: Exception | None = None
        self.stats_failure: Exception | None = None
        self.collected = 0
        self._lock = threading.Lock()
        self._versions = itertools.count()

    def status(self) -> dict[str, Any]:
        return self.report

    def status_version(self) -> int:
        # Tests change the report in place.
        return next(self._versions)

    def stats(self) -> dict[str, Any]:
        if self.stats_failure is not None:
            raise self.stats_failure
        with self._lock:
            self.collected += 1
        return self.figures

    def config(self) -> dict[str, Any]:
        return with_values(Config(), self.live).model_dump(mode="json")

    def screen(self) -> Picture | None:
        return self.picture

    def inference(self) -> dict[str, Any]:
        wanted = self.live["inference"]["processes"]
        ready = 2 if wanted == "auto" else wanted
        return self.live["inference"] | {"ready": ready, "recommended_processes": 5}

    def learning(self) -> dict[str, Any]:
        figures = self.figures["learning"]
        progress = {name: figures[name] for name in ("updates", "updates_per_s")}
        ready = self.live["learning"]["processes"]
        return self.live["learning"] | progress | {"ready": ready}

    def deadlines(self) -> dict[str, Any]:
        figures = self.figures["r3"]
        names = ("elapsed_s", "consumed", "time_ratio", "data_ratio", "batch_cap", "horizons",
                 "episode_deadlines")
        return {**self.live["r3"], **{name: figures[name] for name in names},
                "batch_size": self.figures["learning"]["batch_size"], "decisions": []}

    def checkpoints(self) -> list[dict[str, Any]]:
        return self.files

    def ready(self) -> tuple[bool, str]:
        return self.readiness

    def report_event(self, kind: str, **details: Any) -> None:
        self.reported.append({"kind": kind, **details})

    def events(
        self, limit: int, before: int | None = None, kinds: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        chosen = [
            event for event in self.history
            if (before is None or event["id"] < before) and (not kinds or event["kind"] in kinds)
        ]
        return {"uptime_s": 301.5, "events": chosen[:limit]}

    def timeline(self, seconds: float) -> dict[str, Any]:
        return self.drawn

    def command(self, name: str, arguments: dict[str, Any], by: str) -> dict[str, Any]:
        # A change is noted by section.
        self.commands += [(name, arguments)] if name == "checkpoint" else [*arguments.items()]
        self.askers.append(by)
        if self.failure is not None:
            raise self.failure
        assert self.may_answer.wait(120.0)
        if name == "checkpoint":
            assert self.may_write.wait(120.0)
            return {"file": "checkpoint-000000004100.safetensors", "updates": 4100,
                    "replay": arguments["replay"], "seconds": 0.4}
        for section, changes in arguments.items():
            self.live[section].update(changes)
            figures = self.figures.get(section, {})
            figures.update(
                {key: value for key, value in changes.items() if key in figures and value != "auto"}
            )
        return {section: dict(self.live[section]) for section in arguments}


@pytest.fixture(scope="session", autouse=True)
def document_is_built_once() -> Iterator[None]:
    """Every application has the same OpenAPI document, and making it takes 0.2 s."""
    build = openapi._document
    once = functools.cache(lambda: build(create_app(FakeBackend(), Settings(TOKEN))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi, "_document", lambda app: once())
        yield


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def settings() -> Settings:
    return Settings(token=TOKEN, port=PORT)


def client_of(backend: FakeBackend, settings: Settings, **options: Any) -> TestClient:
    """A client of a service in this process."""
    return TestClient(create_app(backend, settings), **{"base_url": BASE, **options})


def session_cookie(client: TestClient | httpx.Client, settings: Settings) -> dict[str, str]:
    """The header with the cookie of the session that a client has opened."""
    name = cookie_name(f"127.0.0.1:{settings.port}")
    return {"cookie": f"{name}={client.cookies[name]}"}


@pytest.fixture
def stranger(backend: FakeBackend, settings: Settings) -> Iterator[TestClient]:
    """A client without the token."""
    with client_of(backend, settings, follow_redirects=False) as client:
        yield client


@pytest.fixture
def client(stranger: TestClient) -> TestClient:
    """A client with the token."""
    stranger.headers.update(BEARER)
    return stranger


def problem(answer: Any, status: int) -> dict[str, Any]:
    """What an answer of this status says is wrong."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["detail"]
    return found


def wrong_field(answer: Any) -> str:
    """The first field whose value a request is refused for."""
    return str(problem(answer, 422)["errors"][0]["field"])


@dataclass
class RunningService:
    """The service on a real socket, in a thread of this process."""

    backend: FakeBackend
    port: int = 0
    beats: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def settings(self) -> Settings:
        return Settings(token=TOKEN, port=self.port, **self.options)

    def start(self) -> None:
        """Listen: the first time on a free port, then on the same port again."""
        self.port = self.port or free_port()
        sock = bind("127.0.0.1", self.port, reachable=False)
        self._stop.clear()
        arguments = (sock, self.backend, self.settings, self._stop.is_set, self._beat)
        self._thread = threading.Thread(target=serve, args=arguments, daemon=True)
        self._thread.start()

    def tell_to_stop(self) -> None:
        """Begin what `stop` waits for."""
        self._stop.set()

    def stop(self) -> None:
        """Stop the service, and fail if that takes too long."""
        self.tell_to_stop()
        self._thread.join(120.0)
        assert not self._thread.is_alive(), "the service did not stop"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=BEARER, timeout=120.0)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30.0)

    def request(self, asked: str, *lines: str) -> bytes:
        """The head of a request, which begins with a method and a path."""
        head = (f"{asked} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *lines)
        return "\r\n".join(head).encode() + b"\r\n\r\n"

    def login_url(self) -> str:
        """What `rtagent login` would print."""
        with self.client() as client:
            return str(client.post("/v1/logins").json()["url"])

    def _beat(self) -> None:
        self.beats += 1


Serving = Callable[..., AbstractContextManager[RunningService]]


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    """Starts a service of a backend and options; after the block it need not have ended yet.

    It takes 0.3 s to end, and nobody waits for that but the end of all tests.
    """
    begun: list[RunningService] = []

    @contextmanager
    def started(backend: FakeBackend, **options: Any) -> Iterator[RunningService]:
        service = RunningService(backend, options=options)
        service.start()
        begun.append(service)
        try:
            yield service
        finally:
            service.tell_to_stop()

    yield started
    for service in begun:
        service.stop()


@pytest.fixture
def running(serving: Serving, backend: FakeBackend, tmp_path: Path) -> Iterator[RunningService]:
    # With a file, as in the daemon: a browser stays logged in when the service is restarted.
    with serving(backend, sessions_file=tmp_path / "sessions.json") as service:
        yield service


def closed(sock: socket.socket) -> bool:
    """Whether the other end has closed a connection."""
    sock.settimeout(0.001)
    try:
        return sock.recv(65_536) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
