"""The page on phones, in the dark, by keyboard, and for hours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import service
from rtagent.telemetry.figures.cluster import Cluster
from rtagent.telemetry.figures.declaration import example
from tests.service.conftest import RunningService, role
from tests.service.dashboard.conftest import control, event, expect_text, figure, form

STATIC = Path(service.__file__).parent / "static"
pytestmark = pytest.mark.browser


@pytest.mark.parametrize("path", ["", "figures", "docs"])
def test_fits_a_phone(page: Any, running: RunningService, path: str) -> None:
    running.backend.figures["r3"].update(mode="step", time_ratio=0.25, data_ratio=0.5,
                                         memory_budget_bytes=900 << 20)
    running.backend.figures["cluster"] = example(Cluster)
    # A learner whose values diverge.
    running.backend.figures["learning"]["loss"] = 3e38
    # A world whose cost diverges.
    running.backend.figures["episodes"].update(last_return=-1e30, mean_return_100=-1e30)
    running.backend.figures["regret"]["inaction"]["value"] = 1e30
    # A world with long names.
    actions = running.backend.drawn["ticks"]["action"]
    actions[:] = ["STEER_LEFT_BY_HALF_AND_BRAKE_WITH_ALL_WHEELS"] * len(actions)
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(running.settings.url + path)
    if not path:
        expect_text(figure(page, "actions.agent"), "17,800")
        page.locator("#horizon").wait_for(state="visible")
        expect_text(page.locator("#executed-text"), "^STEER_LEFT")
        expect_text(figure(page, "learning.loss"), "^3")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_an_error_of_a_process_is_not_cut_off_at_200_percent(
    page: Any, running: RunningService
) -> None:
    error = "RuntimeError: an observation of the shape (3, 84, 84), and not (84, 84, 3)"
    running.backend.report["roles"][1].update(pid=4_000_000, state="backoff", last_error=error)
    page.set_viewport_size({"width": 640, "height": 400})
    expect_text(page.locator("#processes summary"), "^RuntimeError")
    table = page.get_by_role("region", name="Processes", exact=True).last
    assert table.evaluate("it => it.scrollWidth <= it.clientWidth")


def test_deadlines_of_a_long_run_do_not_cover_each_other(
    page: Any, running: RunningService
) -> None:
    running.backend.figures["r3"].update(
        mode="episode", horizons={"met": 1_234_567, "missed": 12_345},
        episode_deadlines={"met": 12_345_678, "missed": 1_234_567},
    )
    figures = page.locator("#horizon .figures > div")
    for width in (360, 640, 800, 1185, 1280, 1680):
        page.set_viewport_size({"width": width, "height": 800})
        expect_text(figures.last, "12,345,678")
        assert figures.evaluate_all("them => them.every((it) => it.scrollWidth <= it.clientWidth)")


CONTRASTS = """() => {
  const parse = (text) => [...text.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const linear = (part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const worst = {};
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own && !element.matches('input, select')) continue;
    if (!element.checkVisibility() || element.disabled) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) worst[element.outerHTML.slice(0, 120)] = ratio;
  }
  return worst;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(page: Any, running: RunningService, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    backend = running.backend
    backend.figures["inference"]["injected_latency_ms"] = 82.0
    for name in ("60s", "window"):
        backend.figures["actions"][f"inaction_fraction_{name}"] = 0.05
    backend.figures["r3"]["mode"] = "step"
    backend.history[:] = [
        event(2, "failed", "learner 0", error="x", again_in_s=9.6), event(1, "slip", slips=1)
    ]
    backend.report["roles"][3] = role("learner", 0, state="failed", last_error="ValueError: x")
    control(page, "inference.processes").fill("900")
    page.keyboard.press("Enter")
    expect_text(form(page).locator("output"), "Not changed")
    expect_text(page.locator("#verdict-health"), "has failed")
    expect_text(page.locator("#events"), "has failed and is tried again in")
    assert page.evaluate(CONTRASTS) == {}
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", background)[0]) < 60) is (scheme == "dark")
    page.goto(running.settings.url + "figures")
    assert page.evaluate(CONTRASTS) == {}


SIGNS = """() => [
  ['#sources .agent'], ['#time-ratio i'], ['.dot'], ['.pill', '::before'],
  ['.legend .square.agent', '::before'], ['.legend .tick.agent', '::before'],
].map(([name, part]) => getComputedStyle(document.querySelector(name), part).backgroundColor)"""


def test_bars_and_signs_keep_their_colours_where_others_are_forced(page: Any) -> None:
    """They have no text, so without a colour they are not there."""
    expect_text(figure(page, "actions.agent"), "17,800")
    expect_text(page.locator("#state"), "running")
    usual = page.evaluate(SIGNS)
    page.emulate_media(forced_colors="active")
    assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    assert page.evaluate(SIGNS) == usual


def test_keyboard_reaches_every_control(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    everything = (
        "[...document.querySelectorAll('a[href], input:not(:disabled), select, button, summary, "
        "[tabindex=\"0\"]')].filter((each) => each.checkVisibility())"
    )
    number = page.evaluate(f"{everything}.length")
    visited = []
    for _ in range(number):
        page.keyboard.press("Tab")
        visited.append(page.evaluate(
            f"[{everything}.indexOf(document.activeElement),"
            " getComputedStyle(document.activeElement).outlineStyle]"
        ))
    assert visited == [[place, "solid"] for place in range(number)]
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select')].filter((each) => !each.labels.length)"
        ".length"
    )
    assert unnamed == 0


HIDDEN = """() => {
  const focused = document.activeElement;
  const place = (element) => element.getBoundingClientRect();
  const above = place(focused.closest('.field').querySelector('label')).top < 0;
  const below = place(focused).bottom > place(document.querySelector('.foot')).top;
  return above || below ? focused.labels[0].textContent : null;
}"""


@pytest.mark.parametrize("size", [(640, 400), (320, 256)])
def test_the_keyboard_leaves_each_setting_in_sight_with_its_label(
    page: Any, running: RunningService, size: tuple[int, int]
) -> None:
    """Forwards and backwards, in a window enlarged to 200 % and to 400 %."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    expect_text(figure(page, "actions.agent"), "17,800")
    controls = page.locator("#settings .fields :is(input, select)")
    controls.first.focus()
    hidden = []
    for key in ("Tab", "Shift+Tab"):
        for _ in range(controls.count() - 1):
            page.keyboard.press(key)
            hidden.append(page.evaluate(HIDDEN))
    assert set(hidden) == {None}


def test_each_part_is_named_by_its_own_heading_alone(page: Any, running: RunningService) -> None:
    """A reader of the screen names a part whenever the focus enters it."""
    running.backend.figures["cluster"] = example(Cluster)
    running.backend.figures["inference"]["injected_latency_ms"] = 82.0
    page.locator("#cluster").wait_for()
    parts = re.findall(r'- (?:region|form|group) "([^"]+)"', page.locator("main").aria_snapshot())
    assert parts == [
        "In short", "What the agent sees", "Stagger timeline", "Acting in time",
        "Cost of being late", "Learning", "Deadline and memory", "Controls", "Controls", "Env",
        "Inference", "Learning", "R3", "Checkpoint", "Cluster", "Cluster", "Processes",
        "Processes", "Events", "Events",
    ]


def test_nothing_grows_with_time(page: Any) -> None:
    lengths = page.evaluate("""async () => {
      const { History, Markers } = await import('/static/history.js');
      const { Delays } = await import('/static/delays.js');
      const { drawHorizon, followHorizon, showHorizon } = await import('/static/horizon.js');
      const markers = new Markers(), delays = new Delays();
      const history = new History(['a.b']);
      for (let i = 0; i < 20000; i += 1) {
        history.add(i, { a: { b: i } });
        markers.add(i, i, `change ${i}`);
        delays.add({ tick: [i], delay: [i % 50] });
        const stats = { r3: { mode: 'step', time_ratio: i / 2e4, data_ratio: i / 2e4 },
          verdicts: { schedule: { level: 'good', headline: 'On schedule', detail: '' } } };
        followHorizon(stats);
        showHorizon(stats);
      }
      let path = 0;
      const pen = document.querySelector('#path').getContext('2d');
      pen.lineTo = () => { path += 1; };
      drawHorizon();
      delete pen.lineTo;
      const points = history.series.get('a.b');
      return { sampled: points.length, oldest: points[0][0], latest: points.at(-1)[1],
        markers: markers.list.length, counted: delays.list.length, path };
    }""")
    assert 100 < lengths.pop("path") <= 400
    assert lengths == {"sampled": 601, "oldest": 19_399, "latest": 19_999, "markers": 60,
                       "counted": 4096}


def test_lists_on_the_page_stay_short(page: Any, running: RunningService) -> None:
    running.backend.history[:] = [event(500 - i, "slip", slips=i) for i in range(400)]
    expect_text(page.locator("#events li").first, "gave up on catching up")
    running.backend.history[:] = [event(1000 - i, "checkpoint", file=f"c{i}", seconds=0.1)
                                  for i in range(400)]
    expect_text(page.locator("#events li").first, "Checkpoint c0 written")
    assert page.locator("#events li").count() == 50


def test_the_page_is_light() -> None:
    sizes = {path.name: path.stat().st_size for path in STATIC.iterdir()}
    assert sum(sizes.values()) < 200_000
    assert all(path.read_text().count("\n") <= 250 for path in STATIC.glob("*.js"))
