"""The page that explains every figure."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from rtagent.telemetry.figures.declaration import entries
from rtagent.telemetry.figures.document import Stats
from service.routes.labels import SHOWN
from service.routes.pages import SECTIONS, figures_page, kind_and_unit


def test_every_figure_is_explained_once() -> None:
    explained = [each.path for section in SECTIONS for each in section.figures]
    assert {each.path for each in entries(Stats)} <= set(explained)
    assert [each for section in SECTIONS for each in section.shown] == list(SHOWN)
    ids = re.findall(r'<tr id="([^"]+)"', figures_page())
    assert len(ids) == len(set(ids)) == len(explained)


def test_every_explanation_is_a_sentence() -> None:
    texts = [each.figure.meaning for section in SECTIONS for each in section.figures]
    texts += [section.text for section in SECTIONS]
    texts += [each.text for section in SECTIONS for each in section.shown]
    assert [text for text in texts if not re.fullmatch(r"[A-Z].*\.", text)] == []


def test_units() -> None:
    by_path = {each.path: kind_and_unit(each) for part in SECTIONS for each in part.figures}
    assert by_path["clock.drift_ms"] == "measured, ms"
    assert by_path["clock.lateness_us.p99"] == "measured, µs"
    assert by_path["clock.slips"] == "counter, count"
    assert by_path["actions.inaction_fraction"] == "measured, ratio, 0 to 1"
    assert by_path["learning.updates_per_s"] == "measured, 1/s"
    assert by_path["learning.paused"] == "setting, yes or no"
    assert by_path["inference.algorithm"] == "setting"


def test_it_is_served(client: TestClient) -> None:
    answer = client.get("/figures")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text == figures_page()
