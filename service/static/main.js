// The dashboard: takes the figures, which arrive as server-sent events, fetches everything else, and
// hands both to the panels. Nothing that it keeps grows with time.

import { $, put } from "./dom.js";
import { whenLookChanges } from "./canvas.js";
import { chartPaths, drawCharts } from "./charts.js";
import { showCluster } from "./cluster.js";
import { ask, attempt, disregardAnswers, openStream, repeat, wait } from "./connection.js";
import { startControls } from "./controls.js";
import { Delays, drawDelays } from "./delays.js";
import { clearEvents, fetchEvents, news, startEvents } from "./events.js";
import { showFigures } from "./figures.js";
import { inNextFrame } from "./frames.js";
import { at, shown } from "./format.js";
import { History, Markers } from "./history.js";
import { clearHorizon, drawHorizon, followHorizon, showDecision, showHorizon } from "./horizon.js";
import { showProcesses } from "./processes.js";
import { followScreen, leaveSocket, showExecuted } from "./screen.js";
import {
  clearTimeline, loseTimeline, secondsNeeded, startTimeline, takeTimeline, takeTimelineMarkers,
  TIMELINE_POLL_MS,
} from "./timeline.js";
import { health, showNoVerdicts, showVerdict } from "./verdicts.js";

const STREAM_HZ = 5;
const STATUS_MS = 1000;
const EVENTS_MS = 2000;
const SETTINGS_MS = 10_000;
const ABSENT_MS = 5000;

const history = new History(chartPaths());
const markers = new Markers();
const timelineMarkers = new Markers();
const delays = new Delays();

let stats = {};
let chartsAreOld = false;
let run = null;
let lost = false;
let unauthorized = false;
// How often in a row the daemon has told its state since the connection was lost.
let answers = 0;

function drawAll() {
  drawCharts(history, markers);
  drawDelays(delays);
  drawHorizon();
  drawTimeline();
}

// Connection

// A daemon that is just back answers questions for a moment before it sends figures again.
const SURELY_REFUSED = 3;

// What is said of a lost connection, and why the daemon's health is not known.
function whyLost() {
  if (unauthorized) {
    return ["You are not logged in any more: reload this page, and it says what to do.",
      "The session has ended"];
  }
  if (answers > SURELY_REFUSED) {
    return ["Connection lost: the daemon answers, but sends no figures; too many pages may be open. "
      + "Trying again …", "The daemon answers, but sends no figures"];
  }
  return ["Connection lost: these figures are old. Trying again …", "The daemon does not answer"];
}

function showLost() {
  lost = true;
  document.body.classList.add("lost");
  $("#connection").hidden = false;
  const [said, why] = whyLost();
  put($("#connection"), said);
  put($("#state"), "connection lost");
  $("#state").dataset.state = "lost";
  document.title = "connection lost · rtagent";
  showNoVerdicts(why);
  loseTimeline();
  leaveSocket();
}

function showFound() {
  lost = false;
  // It may be another run, which only the status tells.
  delays.clear();
  document.body.classList.remove("lost");
  $("#connection").hidden = true;
  attempt(refreshSettings);
}

function takeFigures(figures) {
  stats = figures;
  followHorizon(stats);
  if (history.add(performance.now() / 1000, stats)) chartsAreOld = true;
  inNextFrame("figures", showAll);
}

function showAll() {
  // What came before the connection was lost must not look like present.
  if (lost) return;
  document.body.classList.remove("waiting");
  showFigures(stats);
  showHorizon(stats);
  showCluster(stats);
  for (const name of ["acting", "lateness", "learning"]) showVerdict(name, stats.verdicts[name]);
  showVerdict("health", health(stats.verdicts.health, news()));
  if (!chartsAreOld) return;
  chartsAreOld = false;
  drawCharts(history, markers);
  drawHorizon();
  drawDelays(delays);
}

// Processes

// Another run has other ticks, events and episodes: nothing of the old run may stay.
function startOver(id) {
  const first = run === null;
  run = id;
  put($("#run-id"), shown(id, "text"));
  if (first) return;
  disregardAnswers();
  history.clear();
  markers.clear();
  delays.clear();
  timelineMarkers.clear();
  clearEvents();
  clearHorizon();
  clearTimeline("Waiting for the new run …");
  attempt(refreshSettings);
}

async function fetchStatus() {
  const { status, body } = await ask("/v1/status").catch((error) => {
    answers = 0;
    throw error;
  });
  unauthorized = status === 401;
  answers = lost && status === 200 ? answers + 1 : 0;
  if (status !== 200 || lost) return;
  if (body.run_id !== run) startOver(body.run_id);
  put($("#state"), shown(body.state, "text"));
  $("#state").dataset.state = body.state;
  const share = at(stats, "actions.inaction_fraction_60s");
  document.title = `${body.state} · acting ${share === null ? "unknown" : shown(1 - share, "percent")} · rtagent`;
  showProcesses(body.roles ?? [], stats.inference?.workers ?? []);
}

// Timeline

async function fetchTimeline() {
  const { status, body } = await ask(`/v1/timeline?seconds=${secondsNeeded()}`).catch((error) => {
    if (!lost) loseTimeline("Not available at the moment.");
    throw error;
  });
  if (status !== 200) {
    clearTimeline("Not available at the moment.");
    await wait(ABSENT_MS);
    return;
  }
  takeTimeline(body);
  delays.add(body.ticks);
  inNextFrame("executed", () => showExecuted(body.ticks));
}

// Events

async function followEvents() {
  const fresh = await fetchEvents();
  for (const { event, label, time } of fresh.filter((each) => each.label !== null)) {
    markers.add(event.id, time, label);
    timelineMarkers.add(event.id, 1000 * event.uptime_s, label);
  }
  takeTimelineMarkers(timelineMarkers.list);
  if (fresh.some(({ event }) => event.kind === "set")) await refreshSettings();
}

async function fetchDecisions() {
  if ((at(stats, "r3.mode") ?? "off") === "off") return;
  const { status, body } = await ask("/v1/deadlines");
  if (status === 200) showDecision(body.decisions ?? []);
}

const followEventsNow = () => attempt(followEvents);
const drawTimeline = startTimeline();
const refreshSettings = startControls(followEventsNow);
startEvents(followEventsNow);
whenLookChanges(drawAll);
openStream(STREAM_HZ, { onFigures: takeFigures, onLost: showLost, onFound: showFound });
// The status is asked for even without a connection: it tells whether the session has ended.
repeat(STATUS_MS, fetchStatus);
const connected = (work) => async () => { if (!lost) await work(); };
repeat(SETTINGS_MS, connected(refreshSettings));
repeat(EVENTS_MS, connected(followEvents));
repeat(EVENTS_MS, connected(fetchDecisions), { hidden: false });
repeat(TIMELINE_POLL_MS, connected(fetchTimeline), { hidden: false });
followScreen(() => !lost);
