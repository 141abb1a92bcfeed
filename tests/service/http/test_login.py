"""How a browser logs in and out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.http import attempts, login, rate_limited_log
from service.http.attempts import BURST
from service.http.login import cookie_name
from service.http.sessions import Sessions
from service.http.settings import Settings
from tests.conftest import eventually
from tests.service.conftest import BASE, BEARER, PORT, TOKEN, client_of, problem, session_cookie

COOKIE = cookie_name(f"127.0.0.1:{PORT}")

PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def new_address(client: TestClient) -> str:
    answer = client.post("/v1/logins", headers=BEARER)
    assert answer.status_code == 201
    assert answer.json()["expires_in_s"] == 600.0
    return str(answer.json()["url"])


def code_of(address: str) -> str:
    return address.removeprefix(f"{BASE}/?code=")


def test_an_address_opens_the_dashboard_once(stranger: TestClient) -> None:
    address = new_address(stranger)
    assert TOKEN not in address
    answer = stranger.get(address)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Path=/" in cookie
    assert "Max-Age=604800" in cookie
    assert "Secure" not in cookie
    session = stranger.cookies[COOKIE]
    assert not {TOKEN, code_of(address)} & {session}
    assert stranger.get("/").status_code == 200
    assert stranger.patch("/v1/inference", json={"processes": 9}).status_code == 200
    stranger.cookies.clear()
    again = stranger.get(address)
    assert again.status_code == 401
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize(("site", "status"), [
    ({}, 200), ({"sec-fetch-site": "cross-site"}, 200), ({"sec-fetch-site": "none"}, 303),
])
def test_a_browser_that_comes_from_another_site_goes_on_from_a_page_of_ours(
    stranger: TestClient, site: dict[str, str], status: int
) -> None:
    answer = stranger.get(new_address(stranger), headers={"accept": "text/html,*/*", **site})
    onward = answer.headers["refresh" if status == 200 else "location"]
    assert (answer.status_code, onward.rpartition("=")[2]) == (status, "/")
    assert answer.headers["cache-control"] == "no-store"
    assert stranger.get("/").status_code == 200


def test_a_used_address_leads_to_the_dashboard_if_the_session_is_open(
    stranger: TestClient, backend: Any
) -> None:
    address = new_address(stranger)
    stranger.get(address)
    session = stranger.cookies[COOKIE]
    for _ in range(BURST + 1):
        again = stranger.get(address)
        assert (again.status_code, again.headers["location"]) == (303, "/")
        assert "set-cookie" not in again.headers
    assert stranger.cookies[COOKIE] == session
    assert backend.reported == []
    # A new address still opens a new session.
    stranger.get(new_address(stranger))
    assert stranger.cookies[COOKIE] != session
    # In the form, a wrong code stays wrong; and a session that has ended opens nothing.
    assert stranger.post("/login", data={"secret": code_of(address)}).status_code == 401
    stranger.delete("/v1/sessions", headers=BEARER)
    assert stranger.get(address).status_code == 401


@pytest.mark.parametrize("secret", ["TOKEN", " TOKEN\n", "CODE", "ADDRESS"])
def test_the_form_takes_token_and_code(stranger: TestClient, secret: str) -> None:
    address = new_address(stranger)
    secret = secret.replace("TOKEN", TOKEN).replace("CODE", code_of(address))
    secret = secret.replace("ADDRESS", address)
    answer = stranger.post("/login", data={"secret": secret})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert stranger.get("/v1/stats").status_code == 200


@pytest.mark.parametrize("secret", ["x", TOKEN[:-1], f"{TOKEN}x", "%ff%00", "%C3%A4" * 43])
def test_the_form_refuses_everything_else(stranger: TestClient, secret: str) -> None:
    for answer in (
        stranger.post("/login", content=f"secret={secret}"), stranger.get(f"/?code={secret}"),
    ):
        assert problem(answer, 401)["type"] == "urn:rtagent:problem:wrong-token"
        assert "set-cookie" not in answer.headers


def test_a_form_of_another_kind_or_without_a_body_is_refused(stranger: TestClient) -> None:
    assert stranger.post("/login").status_code == 401
    assert stranger.post("/login", json={"secret": TOKEN}).status_code == 401
    assert stranger.post("/login", content=b"secret=" + b"x" * 70_000).status_code == 413
    foreign = {"origin": "http://evil.example"}
    answer = stranger.post("/login", data={"secret": TOKEN}, headers=foreign)
    assert answer.status_code == 403


def test_the_token_in_an_address_opens_nothing(stranger: TestClient) -> None:
    for path in ("/", "/v1/stats"):
        assert stranger.get(path, params={"token": TOKEN}).status_code == 401
    assert stranger.get("/", params={"code": TOKEN}).status_code == 303


def test_two_daemons_of_one_port_at_two_forwarded_ports_have_a_cookie_each(backend: Any) -> None:
    # The second to be opened logged the first one out: browsers send cookies to all ports.
    hosts = f"127.0.0.1:{PORT}", "127.0.0.1:9000", "[::1]:9001"
    settings = Settings(token=TOKEN, port=PORT, allowed_hosts=frozenset(hosts))
    clients = [client_of(backend, settings, base_url=f"http://{host}") for host in hosts]
    cookies: dict[str, str] = {}
    for each in clients:
        each.post("/login", data={"secret": TOKEN})
        cookies |= each.cookies
        each.cookies.clear()
    header = {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    assert [each.get("/v1/stats", headers=header).status_code for each in clients] == [200] * 3


@pytest.mark.parametrize("value", [TOKEN, "", "x" * 32])
def test_a_cookie_that_is_no_session(stranger: TestClient, value: str) -> None:
    headers = {"cookie": f"{COOKIE}={value}"}
    assert stranger.get("/v1/stats", headers=headers).status_code == 401


@pytest.mark.parametrize("path", ["/", "/figures", "/docs", "/v1/stats", "/nothing"])
def test_a_person_without_a_session_is_told_what_to_do(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path, headers=PAGE)
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-store"
    assert "rtagent login" in answer.text
    assert 'action="/login"' in answer.text
    assert 'role="alert"' not in answer.text


def test_a_person_is_told_that_an_address_is_used_up(stranger: TestClient) -> None:
    answer = stranger.get("/?code=used", headers=PAGE)
    assert answer.status_code == 401
    assert "has been used or has expired" in answer.text


def test_the_login_page_and_what_it_is_made_of_are_open(stranger: TestClient) -> None:
    page = stranger.get("/login")
    assert page.status_code == 200
    for path in ("/static/style.css", "/static/login.css", "/static/icon.svg"):
        assert path in page.text
        assert stranger.get(path).status_code == 200
    assert "<script" not in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]


def test_logging_out_ends_the_session(stranger: TestClient, settings: Settings) -> None:
    stranger.get(new_address(stranger))
    session = session_cookie(stranger, settings)
    answer = stranger.post("/logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert COOKIE not in stranger.cookies
    assert stranger.get("/v1/stats", headers=session).status_code == 401
    assert stranger.post("/logout").status_code == 303


def test_all_sessions_end_at_once(stranger: TestClient) -> None:
    unused = new_address(stranger)
    stranger.get(new_address(stranger))
    assert stranger.get("/v1/stats").status_code == 200
    assert stranger.delete("/v1/sessions", headers=BEARER).json() == {"ended": 1}
    assert stranger.get("/v1/stats").status_code == 401
    assert stranger.get(unused).status_code == 401


def test_a_session_makes_no_further_ones(stranger: TestClient) -> None:
    stranger.post("/login", data={"secret": TOKEN})
    assert stranger.post("/v1/logins").status_code == 403
    assert stranger.delete("/v1/sessions").status_code == 200


@pytest.fixture
def kept(tmp_path: Path) -> Settings:
    """Settings of a service that keeps its sessions in a file."""
    return Settings(TOKEN, port=PORT, sessions_file=tmp_path / "sessions.json")


def test_sessions_outlive_the_service(backend: Any, kept: Settings) -> None:
    with client_of(backend, kept) as client:
        client.get(new_address(client))
        cookies = dict(client.cookies)
        used = new_address(client)
        client.get(used)
    with client_of(backend, kept, cookies=cookies) as client:
        assert client.get("/v1/stats").status_code == 200
        client.cookies.clear()
        assert client.get(used).status_code == 401


def test_who_has_no_session_has_nothing_written(backend: Any, kept: Settings) -> None:
    """A stranger who logs out again and again must not keep the disk busy or delay logins."""
    file: Any = kept.sessions_file
    with client_of(backend, kept, follow_redirects=False) as client:
        client.post("/login", data={"secret": TOKEN})
        cookies, before = dict(client.cookies), file.stat().st_ino
        client.cookies.clear()
        assert client.post("/logout").status_code == 303
        assert file.stat().st_ino == before
        client.cookies.update(cookies)
        client.post("/logout")
        assert file.stat().st_ino != before
    with client_of(backend, kept, cookies=cookies) as client:
        assert client.get("/v1/stats").status_code == 401


def test_a_disk_that_refuses_costs_no_login(backend: Any, tmp_path: Path) -> None:
    settings = Settings(TOKEN, port=PORT, sessions_file=tmp_path / "gone" / "sessions.json")
    with client_of(backend, settings) as client:
        assert client.get(new_address(client)).status_code == 200


def test_a_disk_that_stalls_brings_no_session_back(
    backend: Any, kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, stalls, goes_on = Sessions.write, threading.Event(), threading.Event()

    def slow(self: Sessions, content: bytes) -> None:
        if not stalls.is_set():
            stalls.set()
            goes_on.wait(30.0)
        write(self, content)

    monkeypatch.setattr(Sessions, "write", slow)
    monkeypatch.setattr(login, "DISK_S", 0.01)
    file: Any = kept.sessions_file
    with client_of(backend, kept) as client:
        client.get(new_address(client))
        session = client.cookies[COOKIE]
        assert client.delete("/v1/sessions", headers=BEARER).json() == {"ended": 1}
        goes_on.set()
        eventually(file.exists, "the disk goes on")
        new_address(client)
    assert not Sessions(TOKEN, file).knows(session)


@pytest.mark.parametrize(
    ("base", "headers", "secure"),
    [
        (BASE, {}, False), (f"https://127.0.0.1:{PORT}", {}, True),
        (BASE, {"x-forwarded-proto": "https"}, True), (BASE, {"x-forwarded-proto": "http"}, False),
    ],
)
def test_the_cookie_is_for_tls_alone_where_there_is_tls(
    backend: Any, settings: Settings, base: str, headers: dict[str, str], secure: bool
) -> None:
    with client_of(backend, settings, base_url=base, follow_redirects=False) as client:
        answer = client.post("/login", data={"secret": TOKEN}, headers=headers)
        assert ("Secure" in answer.headers["set-cookie"]) == secure


def test_failures_are_told_and_limited_but_the_right_token_always_opens(
    stranger: TestClient, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is, no further attempt is granted meanwhile, and no second line.
    monkeypatch.setattr(attempts, "REFILL_S", 3600.0)
    monkeypatch.setattr(rate_limited_log, "INTERVAL_S", 3600.0)
    wrong = {"authorization": "Bearer " + "x" * 43}
    statuses = [stranger.get("/v1/stats", headers=wrong).status_code for _ in range(BURST + 5)]
    assert statuses == [401] * BURST + [429] * 5
    late = stranger.post("/login", data={"secret": "x"})
    assert (late.status_code, int(late.headers["retry-after"]) > 0) == (429, True)
    page = stranger.get("/?code=x", headers=PAGE)
    assert page.status_code == 429
    assert "Too many logins have failed" in page.text
    assert stranger.get("/v1/stats", headers=BEARER).status_code == 200
    assert stranger.get(new_address(stranger)).status_code == 303
    # A request without a token does not count as a failed login.
    stranger.cookies.clear()
    assert stranger.get("/v1/stats").status_code == 401
    assert backend.reported == [
        {"kind": "login_failed",
         "error": "a login from testclient has failed: a wrong token or code"}
    ]
