"""The service behind nginx and Caddy, with the configurations that are in `deploy/`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as open_websocket

from tests.forked import eventually
from tests.installed import require
from tests.ports import free_port
from tests.service.certificates import make_certificate
from tests.service.conftest import TOKEN, FakeBackend, RunningService

pytestmark = pytest.mark.process

NAME = "hub.example"
DEPLOY = Path(__file__).parents[2] / "deploy"
HOUSE = """daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {site}
}}
"""
"""What nginx has around a site, without touching the machine's own."""


def adapted(text: str, folder: Path, port: int, service_port: int) -> str:
    """A configuration of `deploy/` for other ports, and for certificates of this test."""
    text = text.replace("127.0.0.1:8008", f"127.0.0.1:{service_port}")
    text = text.replace("/etc/ssl/rtagent.pem", f"{folder}/{NAME}.pem")
    text = text.replace("/etc/ssl/rtagent.key", f"{folder}/{NAME}.key")
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    return re.sub(rf"^{NAME} {{", f"{NAME}:{port} {{", text, flags=re.M)


def command(proxy: str, program: str, folder: Path, port: int, service_port: int) -> list[str]:
    if proxy == "nginx":
        site = adapted((DEPLOY / "nginx.conf").read_text(), folder, port, service_port)
        config = folder / "nginx.conf"
        config.write_text(HOUSE.format(folder=folder, site=site))
        return [program, "-p", str(folder), "-c", str(config)]
    house = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    config = folder / "Caddyfile"
    config.write_text(
        house + adapted((DEPLOY / "Caddyfile").read_text(), folder, port, service_port)
    )
    return [program, "run", "--adapter", "caddyfile", "--config", str(config)]


@pytest.fixture(params=["nginx", "caddy"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Any]]:
    """A proxy before the service: its port, and what a client must trust."""
    program = shutil.which(request.param, path=f"{os.environ['PATH']}:/usr/sbin")
    require(program, request.param)
    certificate = make_certificate(tmp_path, NAME)
    port = free_port()
    service = RunningService(
        FakeBackend(), options={"allowed_hosts": frozenset({f"{NAME}:{port}"})}
    )
    service.start()
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    proxy = subprocess.Popen(
        command(request.param, program, tmp_path, port, service.port), env=environment,
        stderr=subprocess.DEVNULL,
    )

    def listens() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert eventually(listens)
        yield port, ssl.create_default_context(cafile=str(certificate.certificate))
    finally:
        proxy.terminate()
        proxy.wait(120.0)
        service.stop()


class ToUs(httpx.HTTPTransport):
    """Finds the proxy's name on this machine."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions["sni_hostname"] = NAME
        request.url = request.url.copy_with(host="127.0.0.1")
        return super().handle_request(request)


def test_a_browser_and_a_program_behind_a_proxy(proxied: tuple[int, Any]) -> None:
    port, trust = proxied
    origin = f"https://{NAME}:{port}"
    with httpx.Client(
        transport=ToUs(verify=trust), headers={"host": f"{NAME}:{port}"}, base_url=origin,
    ) as client:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/stats", headers=bearer).status_code == 200
        # What `rtagent login` prints opens at the proxy's name, too.
        address = client.post("/v1/logins", headers=bearer).json()["url"]
        opened = client.get(f"/?{address.partition('?')[2]}")
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        assert "Secure" in opened.headers["set-cookie"]
        cookie = {"cookie": opened.headers["set-cookie"].partition(";")[0]}
        client.cookies.clear()
        assert "rtagent" in client.get("/", headers=cookie).text
        changed = client.patch(
            "/v1/inference", json={"processes": 3}, headers={**cookie, "origin": origin}
        )
        assert changed.json()["processes"] == 3
        foreign = {**cookie, "origin": f"https://evil.example:{port}"}
        refused = client.patch("/v1/inference", json={"processes": 4}, headers=foreign)
        assert refused.status_code == 403
        with client.stream("GET", "/v1/stats/stream?hz=20", headers=cookie) as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data: "))
            assert all(next(lines) for _ in range(3))

    async def look() -> Any:
        async with open_websocket(
            f"wss://{NAME}:{port}/v1/screen", host="127.0.0.1", port=port, ssl=trust,
            additional_headers={**cookie, "origin": origin}, proxy=None,
        ) as screen:
            return await screen.recv()

    assert asyncio.run(look())[:4] == b"\x89PNG"
