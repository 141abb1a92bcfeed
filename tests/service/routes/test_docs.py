"""The calls as a page."""

from __future__ import annotations

import re
from typing import Any

from starlette.testclient import TestClient

from service.routes.docs import calls_page
from tests.service.conftest import BASE


def test_every_call_is_on_the_page(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            assert f"<code>{method.upper()} {path}</code>" in page.text
            assert call["tags"], path
    assert "<code>action_deadline_ms</code>" in page.text
    assert f"{BASE}/v1/status" in page.text


def test_the_command_sends_the_token_by_tls_where_a_proxy_has_it(client: TestClient) -> None:
    page = client.get("/docs", headers={"x-forwarded-proto": "https"}).text
    assert f"{BASE.replace('http:', 'https:')}/v1/status" in page
    assert "http://" not in page


def test_nothing_comes_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs").text
    assert "<script" not in page
    loaded = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert all(each.startswith(("/", "#")) for each in loaded)


def test_texts_are_escaped() -> None:
    call: dict[str, Any] = {
        "tags": ["x"], "summary": "<b>", "description": "a < b",
        "parameters": [{"name": "n<", "description": "<i>"}],
        "requestBody": {"content": {"application/json": {"schema": {
            "anyOf": [{"$ref": "#/components/schemas/Body"}, {"type": "null"}]}}}},
    }
    document = {
        "info": {"description": "<em>"}, "tags": [{"name": "x", "description": "<u>"}],
        "paths": {"/<p>": {"get": call}},
        "components": {"schemas": {"Body": {"properties": {"field": {"description": "of <s>"}}}}},
    }
    page = calls_page(document, "http://<h>")
    for text in ("<em>", "<u>", "/<p>", "n<<", "<i>", "a < b", "<h>", "of <s>"):
        assert text not in page
    assert "<code>field</code> of &lt;s&gt;" in page
