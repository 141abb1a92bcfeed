"""Schemathesis on the OpenAPI document: whatever is sent, the answer is one that is documented."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import ignored_auth

from service.app import create_app
from service.http.problems import MEDIA_TYPE
from service.http.settings import Settings
from tests.service.conftest import BASE, BEARER, PORT, TOKEN, FakeBackend

EXAMPLES = 10
HEADERS = {**BEARER, "host": f"127.0.0.1:{PORT}"}


def application() -> Any:
    app = create_app(FakeBackend(), Settings(TOKEN, port=PORT))
    # So the event stream ends at once.
    app.state.context.stopping.set()
    return app


DOCUMENT = schemathesis.openapi.from_asgi("/openapi.json", application(), headers=HEADERS)
# Valid data may be answered so, too: the ETag is another, or the upgrade is missing.
DOCUMENT.config.checks.positive_data_acceptance.expected_statuses += ["412", "426"]


@schemathesis.check
def errors_are_problems(ctx: Any, response: Any, case: Any) -> None:
    """Every error is problem+json, with the status of the answer."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == [MEDIA_TYPE]
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["detail"]


@pytest.mark.filterwarnings("ignore")
@DOCUMENT.parametrize()
@settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_documented(case: Any) -> None:
    # Requests without a token are tested in `test_openapi.py`.
    case.call_and_validate(base_url=BASE, headers=HEADERS, excluded_checks=[ignored_auth])
