// The event log: what happened, newest first, and the markers that it puts on the charts.

import { $, make, put } from "./dom.js";
import { ask } from "./connection.js";
import { markerLabel, level, sentence } from "./sentences.js";

const SHOWN = 50;
// R3 may report three decisions a second: so many events cover the last minute.
const FETCHED = 200;
const RECENT_S = 60;

const list = $("#events");
const filter = $("#event-kind");
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "medium" });

let drawn = "";
let newest = 0;
let recent = [];

const today = () => new Date().toDateString();

function row(event) {
  const item = make("li", level(event));
  const at = new Date(event.at);
  const before = at.toDateString() === today() ? "" : `${day.format(at)}, `;
  const time = make("time", "", before + clock.format(at));
  time.dateTime = event.at;
  time.title = full.format(at);
  item.append(time, make("span", "kind", event.kind.replaceAll("_", " ")), make("span", "what", sentence(event)));
  return item;
}

function offerKinds(events) {
  const known = new Set([...filter.options].map((option) => option.value));
  for (const { kind } of events) {
    if (known.has(kind)) continue;
    known.add(kind);
    filter.add(new Option(kind.replaceAll("_", " "), kind));
  }
}

function showEvents(events) {
  const state = `${filter.value} ${events[0]?.id} ${events.length} ${today()}`;
  if (state === drawn) return;
  drawn = state;
  list.replaceChildren(...events.map(row));
  $("#no-events").hidden = events.length > 0;
  put($("#no-events"), `Nothing ${filter.value && "of this kind "}has happened yet.`);
}

// Asks for the newest events. Gives those not seen before, each with its time on the page's clock and
// its label.
export async function fetchEvents() {
  const { status, body } = await ask(`/v1/events?limit=${FETCHED}`);
  if (status !== 200) {
    put($("#no-events"), "Not available at the moment.");
    $("#no-events").hidden = list.children.length > 0;
    return [];
  }
  const now = performance.now() / 1000;
  offerKinds(body.events);
  if (filter.value === "") showEvents(body.events.slice(0, SHOWN));
  else await fetchKind(filter.value);
  recent = body.events.filter((event) => body.uptime_s - event.uptime_s < RECENT_S);
  const fresh = body.events.filter(({ id }) => id > newest).reverse();
  newest = body.events[0]?.id ?? newest;
  return fresh.map((event) => ({
    event, label: markerLabel(event), time: now - (body.uptime_s - event.uptime_s),
  }));
}

async function fetchKind(kind) {
  const { status, body } = await ask(`/v1/events?limit=${SHOWN}&kind=${encodeURIComponent(kind)}`);
  if (status === 200 && filter.value === kind) showEvents(body.events);
}

function newestSentence(wanted) {
  const event = recent.find(wanted);
  return event ? sentence(event) : null;
}

// The newest trouble and the newest recovery of the last minute, as sentences; null: there is none.
export const news = () => ({
  trouble: newestSentence((event) => level(event) === "bad"),
  recovery: newestSentence(({ kind }) => kind === "restarted"),
});

export function clearEvents() {
  drawn = "";
  newest = 0;
  recent = [];
  list.replaceChildren();
}

export function startEvents(refresh) {
  filter.addEventListener("change", refresh);
}
