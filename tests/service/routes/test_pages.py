"""The page that explains every figure."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from service.routes import figures
from service.routes.figures import REGRETS, Figure
from service.routes.labels import SHOWN
from service.routes.pages import SECTIONS, figures_page, unit


def test_every_figure_of_the_table_is_explained_once() -> None:
    tables = [value for value in vars(figures).values() if isinstance(value, list)]
    known = {id(each) for table in tables for each in table if isinstance(each, Figure)}
    explained = [id(each) for section in SECTIONS for each in section.figures]
    assert known <= set(explained)
    assert [each for section in SECTIONS for each in section.shown] == list(SHOWN)
    page = figures_page()
    ids = re.findall(r'<tr id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) == len(explained)
    assert {f"regret.{name}" for name in REGRETS} <= set(ids)


def test_every_explanation_is_a_sentence() -> None:
    texts = [each.text for section in SECTIONS for each in section.figures]
    texts += [section.text for section in SECTIONS]
    texts += [each.text for section in SECTIONS for each in section.shown]
    assert [text for text in texts if not re.fullmatch(r"[A-Z].*\.", text)] == []


def test_units() -> None:
    by_path = {each.path: unit(each) for section in SECTIONS for each in section.figures}
    assert by_path["clock.drift_ms"] == "ms"
    assert by_path["clock.lateness_us.p99"] == "µs"
    assert by_path["actions.inaction_fraction"] == "ratio, 0 to 1"
    assert by_path["learning.updates_per_s"] == "1/s"
    assert by_path["learning.paused"] == "yes or no"
    assert by_path["inference.algorithm"] == ""


def test_the_page_needs_the_token(stranger: TestClient, client: TestClient) -> None:
    answer = client.get("/figures")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "clock.drift_ms" in answer.text
    del stranger.headers["authorization"]
    assert stranger.get("/figures").status_code == 401
