// The stagger timeline: keeps the newest seconds, follows the daemon's clock, draws while visible.

import { $, put } from "./dom.js";
import { prepare } from "./canvas.js";
import { plural, shown } from "./format.js";
import { inNextFrame } from "./frames.js";
import { drawFrame, GUTTER, layout, summarise } from "./lanes.js";
import { forgetStrip, showLanes } from "./strip.js";

export const TIMELINE_POLL_MS = 250;
const TICK_PIXELS = 7;
const LONGEST_MS = 2500;
// A slow world: this many ticks, if the daemon tells so much of the past.
const LEAST_TICKS = 12;
const SLOW_MS = 7000;
const SHORTEST_MS = 300;
const WORST_LAG_MS = 2500;
const LAG_STEP_MS = 10;
const MARGIN_MS = 100;
const SUMMARY_MS = 950;

const canvas = $("#timeline");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// What is drawn, and the newest answer: they differ while the picture is held.
let data = null;
let newest = null;
let offset = null;
let lag = null;
let markers = [];
let held = null;
let seen = false;
let summarised = -Infinity;

// The daemon's time in ms. An answer can only be late, so the earliest one sets the clock.
function follow(now_ms) {
  const candidate = now_ms - performance.now();
  offset = offset === null || Math.abs(candidate - offset) > 2000
    ? candidate : Math.max(offset - 0.2, candidate);
}

const daemonNow = () => performance.now() + offset;

// While an answer is late the picture waits: beyond what is known there seem to be no ticks.
const drawnNow = () => Math.min(daemonNow(), data.now_ms + lag);

// How far the picture stays behind, so that what it shows has been registered and fetched: the age of
// the last answer when the next one came, and the length of an inference. The lag shrinks slowly.
function adaptLag(age) {
  const lengths = data.bars.end_ms.map((end, i) => end - data.bars.start_ms[i]).sort((a, b) => a - b);
  const long = lengths[Math.floor(0.98 * lengths.length)] ?? 0;
  const wanted = Math.min(WORST_LAG_MS, Math.max(TIMELINE_POLL_MS, age) + MARGIN_MS + long);
  lag = lag === null ? wanted : Math.max(wanted, lag - LAG_STEP_MS);
}

function span() {
  const wanted = Number($("#span").value);
  if (wanted) return wanted;
  const fits = (data.tick_ms * (canvas.clientWidth - GUTTER)) / TICK_PIXELS;
  const most = Math.max(LONGEST_MS, Math.min(SLOW_MS, LEAST_TICKS * data.tick_ms));
  return Math.min(most, Math.max(SHORTEST_MS, fits));
}

// Whole seconds to ask for: those shown and those that the picture stays behind.
export function secondsNeeded() {
  return data === null ? 3 : Math.min(10, Math.max(3, Math.ceil((span() + lag) / 1000)));
}

export function takeTimeline(answer) {
  const age = newest === null ? 0 : daemonNow() - newest.now_ms;
  follow(answer.now_ms);
  newest = answer;
  $("#no-timeline").hidden = true;
  if (held !== null) return;
  data = answer;
  adaptLag(age);
  forgetStrip();
  if (calm.matches || !seen) draw();
  else inNextFrame("timeline", animate);
}

export function takeTimelineMarkers(list) {
  markers = list;
  forgetStrip();
}

export function clearTimeline(reason) {
  data = newest = offset = lag = held = null;
  markers = [];
  summarised = -Infinity;
  showHeld();
  prepare(canvas);
  put($("#timeline-summary"), "");
  canvas.setAttribute("aria-label", `Stagger timeline: ${reason}`);
  put($("#no-timeline"), reason);
  $("#no-timeline").hidden = false;
}

// Without answers the picture would run empty, as if no tick had happened. A held one stays.
export function loseTimeline(reason = "Not known: the connection is lost.") {
  if (held === null) clearTimeline(reason);
}

function draw() {
  if (data === null) return;
  const paper = prepare(canvas);
  if (paper === null) return;
  const now = held ?? drawnNow();
  const to = now - lag;
  const from = to - span();
  const place = layout(paper.width, paper.height, data, from, to);
  const view = { from, to, now, markers };
  showLanes(canvas, paper, place, data, view);
  drawFrame(paper.pen, place, data, view);
  if (performance.now() - summarised > SUMMARY_MS) describe(from, to);
}

function describe(from, to) {
  summarised = performance.now();
  const found = summarise(data, from, to);
  const odd = found.outliers ? `, ${plural(found.outliers, "outlier", "outliers")}` : "";
  const text = `${plural(data.workers.length, "process", "processes")}, `
    + `${plural(found.ticks, "tick", "ticks")}: ${found.agent} from the agent, `
    + `${found.reused} re-used, ${found.default} default. `
    + `From observation to action: median ${shown(found.median, "ms")}, longest ${shown(found.longest, "ms")}${odd}.`;
  put($("#timeline-summary"), text);
  canvas.setAttribute("aria-label", `Stagger timeline, last ${((to - from) / 1000).toFixed(1)} s: ${text}`);
}

// In every frame of the page, while it is on the screen and moves.
function animate() {
  if (!seen || data === null || held !== null || calm.matches) return;
  draw();
  inNextFrame("timeline", animate);
}

function showHeld() {
  const button = $("#hold");
  // Its text says what it does next; a state of being pressed beside it would say the opposite.
  button.classList.toggle("held", held !== null);
  put(button, held === null ? "Hold" : "Resume");
}

function hold() {
  held = held === null && data !== null ? drawnNow() : null;
  data = newest;
  showHeld();
  redraw();
}

// Draws and describes the picture at once: it is no longer that of a moment ago.
function redraw() {
  summarised = -Infinity;
  forgetStrip();
  draw();
}

export function startTimeline() {
  $("#hold").addEventListener("click", hold);
  $("#span").addEventListener("change", redraw);
  // A hidden page has asked for nothing.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) loseTimeline("Waiting for the newest ticks …");
  });
  new IntersectionObserver((entries) => {
    seen = entries.at(-1).isIntersecting;
    if (seen) inNextFrame("timeline", animate);
  }).observe(canvas);
  return redraw;
}
