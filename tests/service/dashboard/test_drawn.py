"""What the page draws: screen, stagger timeline, delays."""

from __future__ import annotations

import re
import time
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.forked import eventually
from tests.service.conftest import RunningService, example_timeline
from tests.service.dashboard.conftest import event, expect_attribute, expect_text, verdict

pytestmark = pytest.mark.browser


def moving_timeline(
    processes: int, lost: int = 7, ahead_ms: float = 0.0, tick_ms: float = 1e3 / 59.7275
) -> Any:
    """A timeline that moves with the clock."""
    started, begin_ms = time.monotonic(), 60_000.0 + ahead_ms
    return lambda seconds: example_timeline(
        begin_ms + 1e3 * (time.monotonic() - started), seconds, processes, lost, tick_ms
    )


def draw(page: Any, running: RunningService, processes: int, **options: Any) -> None:
    """Open the page, and wait for the timeline of so many processes, which moves."""
    running.backend.timeline = moving_timeline(processes, **options)
    page.goto(running.login_url())
    expect_text(page.locator("#timeline-summary"), f"^{processes} process")


def test_screen_moves(blank: Any, running: RunningService) -> None:
    sockets: list[str] = []
    blank.on("websocket", lambda socket: socket.on("framereceived", lambda _: sockets.append("!")))
    blank.goto(running.login_url())
    assert_screen_follows(blank, running)
    assert sockets, "the pictures were not pushed"


def test_screen_moves_without_a_socket(blank: Any, running: RunningService) -> None:
    blank.add_init_script(
        "window.WebSocket = class { constructor() { setTimeout(() => this.onclose(), 10); } };"
    )
    blank.goto(running.login_url())
    assert_screen_follows(blank, running)


def assert_screen_follows(page: Any, running: RunningService) -> None:
    pixel = ("document.querySelector('#screen').getContext('2d').getImageData(5, 5, 1, 1).data[0]")

    def shows(grey: int) -> bool:
        return bool(page.evaluate(pixel) == grey)

    for grey in (200, 40):
        running.backend.picture = np.full((84, 84), grey, np.uint8)
        assert eventually(partial(shows, grey))


SIZES = """async () => {
  const { showExecuted } = await import('/static/screen.js');
  return ['default', 'agent', 'reused'].map((source) => {
    showExecuted({ tick: [9], source: [source], worker: [0], delay: [10], action: ['RIGHT'] });
    return document.querySelector('.frame').clientHeight;
  });
}"""


def test_the_screen_keeps_its_size_whatever_was_executed(page: Any) -> None:
    """It would jump with each tick."""
    expect_text(page.locator("#executed-text"), "from the agent")
    assert len(set(page.evaluate(SIZES))) == 1


def test_no_frame_yet(page: Any, running: RunningService) -> None:
    running.backend.picture = None
    page.reload()
    expect_text(page.locator("#no-screen"), "there is no frame yet")


COLOURS = """() => {
  const $ = (name) => document.querySelector(name);
  const canvas = $('#timeline');
  const density = window.devicePixelRatio;
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => style.getPropertyValue(name).match(/[0-9a-f]{2}/gi)
    .map((part) => parseInt(part, 16));
  const near = (data, at, colour) => colour.every((part, i) => Math.abs(data[at + i] - part) < 12);
  const pen = canvas.getContext('2d');
  const count = (top, height, name) => {
    const area = [40, top, canvas.clientWidth - 40, height].map((each) => each * density);
    const [{ data }, colour] = [pen.getImageData(...area), rgb(name)];
    let found = 0;
    for (let at = 0; at < data.length; at += 4) {
      if (data[at + 3] > 200 && near(data, at, colour)) found += 1;
    }
    return found;
  };
  const runs = (y, name) => {
    const width = (canvas.clientWidth - 40) * density;
    const [{ data }, colour] = [pen.getImageData(40 * density, y * density, width, 1), rgb(name)];
    const red = Array.from({ length: width }, (_, i) => near(data, 4 * i, colour));
    return red.filter((each, i) => each && !red[i - 1]).length;
  };
  const bottom = canvas.clientHeight - 40;
  const lane = (bottom - 20) / LANES;
  return {
    lanes: [...Array(LANES).keys()].map((i) =>
      count(20 + i * lane, Math.max(1, lane - 1), '--good')),
    lost: count(bottom + 4, 16, '--bad'),
    boxes: runs(bottom + 6, '--bad'),
    told: parseInt(/(\\d+) default/.exec($('#timeline-summary').textContent)?.[1]),
    ruler: count(bottom + 4, 18, '--good'),
    marks: count(2, 14, '--ink'),
  };
}"""


@pytest.mark.parametrize("processes", [1, 5, 34])
def test_timeline_draws(blank: Any, running: RunningService, processes: int) -> None:
    draw(blank, running, processes)
    expect_text(blank.locator("#timeline-summary"), r"[1-9]\d* default")
    expect_attribute(blank.locator("#timeline"), "aria-label", "Stagger timeline, last")
    assert blank.locator("#no-timeline").is_hidden()

    def drawn() -> bool:
        found = blank.evaluate(COLOURS.replace("LANES", str(processes)))
        return min(found["lanes"]) > 1 and found["lost"] > 10 and found["ruler"] > 20

    assert eventually(drawn)
    # The held picture has as many red boxes as the caption says, give or take one at the edge.
    blank.locator("#hold").click()
    found = blank.evaluate(COLOURS.replace("LANES", str(processes)))
    assert abs(found["boxes"] - found["told"]) <= 1 < found["told"]


def test_timeline_without_losses_is_not_red(blank: Any, running: RunningService) -> None:
    draw(blank, running, 2, lost=1_000_000_007)
    expect_text(blank.locator("#timeline-summary"), "0 default")
    found = blank.evaluate(COLOURS.replace("LANES", "2"))
    assert (found["lost"], found["marks"]) == (0, 0)
    expect_text(blank.locator("#executed-text"), r"^LEFT, from the agent \(process [01], "
                r"observation 2 ticks old\)$")
    expect_attribute(blank.locator("#delays"), "aria-label", r"2 ticks 100\.0 %")


def test_timeline_of_a_slow_world_shows_several_ticks(blank: Any, running: RunningService) -> None:
    draw(blank, running, 1, tick_ms=1000.0)
    expect_attribute(
        blank.locator("#timeline"), "aria-label", r"last 7\.0 s: 1 process, [678] ticks"
    )


SUMMARY = """async () => {
  const { summarise } = await import('/static/lanes.js');
  const ticks = { at_ms: [], source: [] };
  const bars = { start_ms: [0, 10, 110], end_ms: [10, 110, 130] };
  const found = (to) => summarise({ ticks, bars, tick_ms: 50 }, 0, to).median;
  return [found(5), found(10), found(110), found(130)];
}"""


def test_the_median_of_two_inferences_is_between_them(page: Any) -> None:
    assert page.evaluate(SUMMARY) == [None, 10, 55, 20]


LABELS = """async () => {
  const { Delays, drawDelays } = await import('/static/delays.js');
  const pen = document.querySelector('#delays').getContext('2d');
  let closest = Infinity;
  for (let longest = 7; longest < 100; longest += 1) {
    const ends = {}, delays = new Delays();
    pen.fillText = (text, x, y) => {
      const half = pen.measureText(text).width / 2;
      closest = Math.min(closest, x - half - (ends[y] ?? -Infinity));
      ends[y] = x + half;
    };
    delays.add({ tick: [1, 2, 3], delay: [0, longest, null] });
    drawDelays(delays);
  }
  delete pen.fillText;
  return closest;
}"""


def test_delays_are_those_of_the_newest_ticks_alone(page: Any) -> None:
    """A hidden page asks for no ticks; those from before are not the newest any more."""
    counted = page.evaluate("""async () => {
      const { Delays } = await import('/static/delays.js');
      const delays = new Delays();
      const counted = [[7, 8, 9], [8, 9, 10], [11, 12], [50, 51]].map((tick) => {
        delays.add({ tick, delay: tick.map(() => 2) });
        return delays.list.length;
      });
      return [...counted, delays.counts()[2]];
    }""")
    assert counted == [3, 4, 6, 2, 2]


def test_one_tick_is_read_out_as_one(page: Any) -> None:
    said = page.evaluate("""async () => {
      const { Delays, drawDelays } = await import('/static/delays.js');
      const delays = new Delays();
      delays.add({ tick: [7, 8], delay: [1, 2] });
      drawDelays(delays);
      return document.querySelector('#delays').getAttribute('aria-label');
    }""")
    assert "1 tick 50.0\u00a0%, 2 ticks 50.0" in said


def test_labels_of_delays_do_not_touch(page: Any) -> None:
    expect_attribute(page.locator("#delays"), "aria-label", "Delays of the newest")
    assert page.evaluate(LABELS) >= 2


BOUNDS = """async () => {
  const { bounds } = await import('/static/charts.js');
  return [bounds([-0.8, -1.1], '1e-9'), bounds([0.4, -0.3], '1e-9'), bounds([0.5, 1], '1e-9'),
          bounds([16, 32], '8', true)];
}"""


def test_a_chart_shows_losses_below_zero_and_whole_numbers_at_whole_lines(page: Any) -> None:
    below, mixed, above, whole = page.evaluate(BOUNDS)
    assert below[0] < -1.1 < -0.8 < below[1]
    assert mixed[0] < -0.3 < 0.4 < mixed[1]
    assert above == pytest.approx([0.0, 1.1])
    # The middle of 0 to 35.2 was called 18.
    assert whole == [0, 36]


IDLE = """async () => {
  const { drawFrame, layout } = await import('/static/lanes.js');
  const data = { workers: [...Array(40).keys()].map((id) => ({ id, state: 'starting' })) };
  const place = layout(600, 260, data, 0, 1000);
  const boxes = [];
  const pen = { measureText: () => ({ width: 70 }), fillText() {},
    fillRect: (x, y, width, height) => boxes.push([y, y + height]) };
  drawFrame(pen, place, data, { from: 0, to: 1000, now: 1100 });
  return boxes;
}"""


def test_labels_of_many_processes_that_start_do_not_cover_each_other(page: Any) -> None:
    boxes = page.evaluate(IDLE)
    assert len(boxes) > 5
    assert all(above[1] <= below[0] for above, below in pairwise(boxes))


def test_timeline_shows_a_restart(blank: Any, running: RunningService) -> None:
    draw(blank, running, 2)
    now_s = running.backend.timeline(1.0)["now_ms"] / 1e3
    restarted = {**event(1, "restarted", "inference 1", restarts=1), "uptime_s": now_s}
    running.backend.history.insert(0, restarted)
    assert eventually(lambda: blank.evaluate(COLOURS.replace("LANES", "2"))["marks"] > 10)


def test_timeline_counts_no_ticks_while_the_connection_is_lost(
    blank: Any, running: RunningService
) -> None:
    draw(blank, running, 2)
    blank.locator("#span").select_option("300")
    running.stop()
    expect_text(blank.locator("#no-timeline"), "connection is lost")
    expect_text(blank.locator("#timeline-summary"), "^$")
    running.start()
    expect_text(blank.locator("#timeline-summary"), "2 processes")


HIDE = """() => {
  window.works = [];
  window.ask = window.requestAnimationFrame;
  window.requestAnimationFrame = (work) => works.push(work);
  Object.defineProperty(document, 'hidden', { value: true, configurable: true });
}"""
LISTEN = """() => {
  const summary = document.querySelector('#timeline-summary');
  window.told = [];
  new MutationObserver(() => told.push(summary.textContent)).observe(summary, { childList: true });
}"""
COME_BACK = """() => {
  const now = performance.now.bind(performance);
  performance.now = () => now() + 60_000;
  delete document.hidden;
  document.dispatchEvent(new Event('visibilitychange'));
  window.requestAnimationFrame = ask;
  works.forEach(ask);
}"""


def test_timeline_counts_no_ticks_before_a_page_that_was_hidden_has_asked_for_them(
    blank: Any, running: RunningService
) -> None:
    draw(blank, running, 2)
    blank.evaluate(HIDE)
    assert eventually(lambda: blank.evaluate("works.length > 0"))
    blank.evaluate(LISTEN)
    blank.evaluate(COME_BACK)
    assert eventually(lambda: blank.evaluate("told.filter((text) => / agent/.test(text)).length"))
    assert not [text for text in blank.evaluate("told") if " 0 ticks" in text]


def test_timeline_counts_no_ticks_that_it_was_not_told_of(
    blank: Any, running: RunningService
) -> None:
    """Figures still arrive, but the request of the timeline is not answered."""
    draw(blank, running, 2)
    blank.locator("#span").select_option("300")
    blank.evaluate(LISTEN)
    blank.route("**/v1/timeline*", lambda route: None)
    expect_text(blank.locator("#no-timeline"), "Not available at the moment")
    expect_text(blank.locator("#timeline-summary"), "^$")
    assert not [text for text in blank.evaluate("told") if " 0 ticks" in text]
    blank.unroute("**/v1/timeline*")
    expect_text(blank.locator("#timeline-summary"), "2 processes")


def test_timeline_can_be_held(blank: Any, running: RunningService) -> None:
    draw(blank, running, 5)
    picture = "document.querySelector('#timeline').toDataURL()"
    before = blank.evaluate(picture)
    assert eventually(lambda: blank.evaluate(picture) != before)
    blank.get_by_role("button", name="Hold").click()
    held = blank.evaluate(picture)
    # Two answers of the daemon later a picture that is not held would have moved.
    blank.wait_for_timeout(600)
    assert blank.evaluate(picture) == held
    # Another span shows the same moment, whatever has come since then.
    running.backend.timeline = moving_timeline(5, ahead_ms=10_000.0)
    blank.wait_for_timeout(600)
    for span, least in (("2500", 20), ("300", 3)):
        blank.locator("#span").select_option(span)
        told = blank.locator("#timeline-summary").inner_text()
        ticks = re.search(r"(\d+) ticks", told)
        assert int(ticks[1]) > least
    # "Resume" says what the button does next, so it is not pressed.
    assert blank.get_by_role("button", name="Resume", pressed=True).count() == 0
    blank.get_by_role("button", name="Resume").click()
    assert eventually(lambda: blank.evaluate(picture) != held)


def test_reduced_motion_does_without_animation(blank: Any, running: RunningService) -> None:
    blank.emulate_media(reduced_motion="reduce")
    blank.add_init_script(
        "window.drawn = 0; const draw = CanvasRenderingContext2D.prototype.drawImage;"
        "CanvasRenderingContext2D.prototype.drawImage = function (...all) {"
        "  if (this.canvas.id === 'timeline') window.drawn += 1; draw.apply(this, all); };"
    )
    draw(blank, running, 2)
    answers: list[str] = []
    blank.on("response", lambda answer: answers.append(answer.url))
    before = blank.evaluate("window.drawn")

    def drawn() -> tuple[int, int]:
        """How often it has been drawn, and how many answers there were to draw."""
        times = blank.evaluate("window.drawn") - before
        return times, sum("/v1/timeline" in url for url in answers)

    assert eventually(lambda: drawn()[0] >= 3)
    times, there = drawn()
    # An animation draws 30 times a second, many times between two answers.
    assert times <= 2 * there + 2


def test_what_is_not_available_is_named_and_the_rest_works(
    blank: Any, running: RunningService
) -> None:
    for absent in ("**/v1/timeline*", "**/v1/events*"):
        blank.route(absent, lambda route: route.fulfill(status=404, json={"detail": "not found"}))
    blank.goto(running.login_url())
    expect_text(blank.locator("#no-timeline"), "Not available")
    expect_text(blank.locator("#no-events"), "Not available")
    expect_text(verdict(blank, "acting"), "acting on")


FARTHEST_LEFT = """async () => {
  const { chartPaths, drawCharts } = await import('/static/charts.js');
  const { History, Markers } = await import('/static/history.js');
  const pen = document.querySelector('[data-series="learning.loss"]').getContext('2d');
  const history = new History(chartPaths());
  let farthest = Infinity;
  NOTE
  drawCharts(history, new Markers());
  ['moveTo', 'lineTo', 'fillText'].forEach((name) => delete pen[name]);
  return farthest;
}"""
LINES = """
  for (let time = 0; time < 1200; time += 2) history.add(time, { learning: { loss: time / 1e3 } });
  pen.moveTo = pen.lineTo = (x) => { farthest = Math.min(farthest, x); };
"""
NUMBERS = """
  history.add(0, { learning: { loss: 1234567.8 } });
  pen.fillText = (text, x) => {
    const width = pen.textAlign === 'right' ? pen.measureText(text).width : 0;
    farthest = Math.min(farthest, x - width);
  };
"""


def test_what_is_older_than_a_chart_is_not_drawn_beside_it(page: Any) -> None:
    """A reconnected page has kept samples from before the time that the axis shows."""
    assert page.evaluate(FARTHEST_LEFT.replace("NOTE", LINES)) == 62


def test_an_axis_has_room_for_all_digits_of_large_numbers(page: Any) -> None:
    assert page.evaluate(FARTHEST_LEFT.replace("NOTE", NUMBERS)) >= 0
