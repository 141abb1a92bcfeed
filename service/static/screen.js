// What the agent sees: pictures pushed through a WebSocket, or fetched if it cannot be opened.

import { $, put } from "./dom.js";
import { inNextFrame } from "./frames.js";
import { attempt, Unreachable, wait } from "./connection.js";
import { plural } from "./format.js";

const HZ = 10;
const RETRY_MS = 1000;
const FETCHED_FOR_MS = 30_000;
const PATIENCE_MS = 3000;

const screen = $("#screen");
const pen = screen.getContext("2d");

async function show(blob) {
  const picture = await createImageBitmap(blob);
  inNextFrame("screen", () => {
    if (screen.width !== picture.width || screen.height !== picture.height) {
      [screen.width, screen.height] = [picture.width, picture.height];
    }
    pen.drawImage(picture, 0, 0);
    picture.close();
  });
}

// Gives whether there was a picture.
async function fetchPicture() {
  let response;
  try {
    response = await fetch("/v1/screen.png", { signal: AbortSignal.timeout(PATIENCE_MS) });
    $("#no-screen").hidden = response.ok;
    if (response.ok) {
      await show(await response.blob());
      return true;
    }
    put($("#no-screen"), (await response.json()).detail ?? "there is no picture yet");
  } catch (error) {
    throw new Unreachable(error.message);
  }
  inNextFrame("screen", () => pen.clearRect(0, 0, screen.width, screen.height));
  return false;
}

// Leaves the socket that is listened to, if there is one, without waiting for its close event: the
// socket of a machine that has vanished stays open for many minutes.
export let leaveSocket = () => {};

// Shows what is pushed until the socket closes or is left, or the page is hidden; gives whether it
// ever opened.
function listen() {
  return new Promise((resolve) => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/v1/screen?hz=${HZ}`);
    let opened = false;
    const leaveIfHidden = () => { if (document.hidden) leaveSocket(); };
    const end = () => {
      document.removeEventListener("visibilitychange", leaveIfHidden);
      leaveSocket = () => {};
      resolve(opened);
    };
    leaveSocket = () => {
      socket.onopen = socket.onmessage = socket.onclose = null;
      end();
      socket.close();
    };
    document.addEventListener("visibilitychange", leaveIfHidden);
    socket.onopen = () => { opened = true; };
    socket.onmessage = ({ data }) => show(data);
    socket.onclose = end;
  });
}

async function fetchFor(milliseconds, isWanted) {
  const until = performance.now() + milliseconds;
  while (performance.now() < until && isWanted() && await fetchPicture()) await wait(1000 / HZ);
}

// Shows pictures for ever, but asks for none while the page is hidden or the connection lost.
export async function followScreen(isConnected) {
  const isWanted = () => !document.hidden && isConnected();
  for (;;) {
    await attempt(async () => {
      if (!isWanted()) return;
      if (await fetchPicture() && !await listen()) await fetchFor(FETCHED_FOR_MS, isWanted);
    });
    await wait(RETRY_MS);
  }
}

const SOURCES = {
  agent: (origin) => `from the agent (${origin})`,
  reused: (origin) => `re-used from the agent (${origin})`,
  default: () => "default behaviour: no action was ready",
};

// The newest tick: which action was executed, and where it came from.
export function showExecuted({ tick, source, worker, delay, action }) {
  const last = tick.length - 1;
  if (last < 0) return;
  const origin = `process ${worker[last]}, observation ${plural(delay[last] ?? 0, "tick", "ticks")} old`;
  const name = action?.[last] ?? null;
  $("#executed").dataset.source = source[last];
  put($("#executed-text"), (name === null ? "" : `${name}, `) + SOURCES[source[last]](origin));
}
