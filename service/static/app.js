// The dashboard: figures arrive as server-sent events, the state of the processes and the picture
// are fetched. A null is shown as "unknown", never as 0.

const UNKNOWN = "unknown";
const STREAM_HZ = 5;
const SILENCE_MS = 3000;
const RETRY_MS = 1000;
const SCREEN_MS = 100;
const STATUS_MS = 1000;
const CHART_SECONDS = 600;

const $ = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const count = new Intl.NumberFormat("en");
const fixed = (digits) => {
  const format = new Intl.NumberFormat("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits,
  });
  return (value) => format.format(value);
};
const FORMATS = {
  text: String,
  count: (value) => count.format(value),
  fixed1: fixed(1),
  fixed2: fixed(2),
  fixed4: fixed(4),
  precise: (value) => (Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(2) : fixed(4)(value)),
  percent: (value) => `${fixed(value < 0.1 ? 2 : 1)(100 * value)} %`,
  ms: (value) => `${fixed(Math.abs(value) < 10 ? 2 : 1)(value)} ms`,
  us: (value) => (value < 1000 ? `${fixed(0)(value)} µs` : `${fixed(2)(value / 1000)} ms`),
  ticks: (value) => `${fixed(value % 1 ? 1 : 0)(value)} ${value === 1 ? "tick" : "ticks"}`,
  bytes: (value) => `${fixed(0)(value / 2 ** 20)} MiB`,
  duration: (value) => {
    const seconds = Math.floor(value);
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return parts.map((part) => String(part).padStart(2, "0")).join(":");
  },
};

const at = (figures, path) => path.split(".").reduce((value, key) => value?.[key], figures) ?? null;
const shown = (value, format) => (value === null || value === undefined ? UNKNOWN : FORMATS[format](value));

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
  element.classList.toggle("unknown", text === UNKNOWN);
}

// Figures

const bound = all("[data-figure]");

function showFigures(stats) {
  for (const element of bound) {
    put(element, shown(at(stats, element.dataset.figure), element.dataset.format));
  }
  showVerdict(stats);
  showDeadlines(stats);
  showInjected(at(stats, "inference.injected_latency_ms"));
  showSettings(stats.inference ?? {});
}

function showVerdict(stats) {
  const inaction = at(stats, "actions.inaction_fraction_60s");
  $("#hero").className = "hero " + (inaction === null ? "none" : inaction > 0.1 ? "late" : inaction > 0.02 ? "some" : "good");
  const sources = ["agent", "reused", "default"].map((name) => [name, at(stats, `actions.${name}`) ?? 0]);
  const total = sources.reduce((sum, [, ticks]) => sum + ticks, 0);
  for (const [name, ticks] of sources) {
    $(`.meter .${name}`).style.width = `${total ? (100 * ticks) / total : 0}%`;
  }
}

function showDeadlines(stats) {
  $("#paused").hidden = at(stats, "learning.paused") !== true;
  $("#horizon").hidden = (at(stats, "r3.mode") ?? "off") === "off";
  $("#memory").hidden = at(stats, "r3.memory_budget_bytes") === null;
  for (const bar of all("[data-share]")) {
    bar.style.width = `${100 * Math.min(1, at(stats, bar.dataset.share) ?? 0)}%`;
  }
}

function showInjected(latency) {
  const injected = latency > 0;
  $("#injected").hidden = !injected;
  for (const tag of all(".tag:not(#paused)")) {
    tag.hidden = !injected;
    if (injected) put(tag, `injected: ${FORMATS.ms(latency)}`);
  }
  if (injected) {
    put($("#injected"), `Injected latency: inference is padded to ${FORMATS.ms(latency)} on average, `
      + "so timing figures show that latency and not this machine's own.");
  }
}

// Settings

const form = $("#inference");
const answer = $("#answer");
let inForce = {};
let edited = false;

function showSettings(inference) {
  inForce = { processes: inference.processes, algorithm: inference.algorithm };
  if (edited) return;
  for (const [name, value] of Object.entries(inForce)) {
    const field = form.elements[name];
    if (value !== null && value !== undefined && field.value !== String(value)) field.value = value;
  }
}

function say(text, refused = false) {
  answer.className = refused ? "refused" : "";
  put(answer, text);
}

form.addEventListener("input", () => { edited = true; say(""); });
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const wanted = {
    processes: form.elements.processes.value === "" ? null : Number(form.elements.processes.value),
    algorithm: form.elements.algorithm.value,
  };
  const change = Object.fromEntries(Object.entries(wanted).filter(([name, value]) => value !== inForce[name]));
  const button = form.querySelector("button");
  button.disabled = true;
  say("Changing …");
  try {
    const response = await fetch("/v1/inference", {
      method: "PATCH",
      headers: { "content-type": "application/merge-patch+json" },
      body: JSON.stringify(change),
    });
    const body = await response.json();
    if (!response.ok) throw new Error(body.detail ?? `refused with status ${response.status}`);
    edited = false;
    inForce = { processes: body.processes, algorithm: body.algorithm };
    say(`In force: ${body.processes} ${body.processes === 1 ? "process" : "processes"}, ${body.algorithm}.`);
  } catch (error) {
    say(error instanceof TypeError ? "Not changed: the daemon cannot be reached." : `Not changed. ${error.message}`, true);
  } finally {
    button.disabled = false;
  }
});

// Processes

const rows = new Map();
const COLUMNS = [
  ["name", "", ""], ["state", "", ""], ["pid", "number", "PID"], ["p50", "number", "p50"], ["p99", "number", "p99"],
  ["weights", "number", "Weights"], ["restarts", "number", "Restarts"], ["error", "error", ""],
];

function newRow() {
  const row = document.createElement("tr");
  for (const [name, kind, label] of COLUMNS) {
    const cell = row.insertCell();
    cell.className = `${name} ${kind}`;
    if (label) cell.dataset.label = label;
  }
  const [dot, word] = [document.createElement("span"), document.createElement("span")];
  dot.className = "dot";
  row.querySelector(".state").append(dot, word);
  return row;
}

function showError(cell, error) {
  if (cell.dataset.error === (error ?? "")) return;
  cell.dataset.error = error ?? "";
  cell.replaceChildren();
  cell.classList.toggle("blank", !error);
  if (!error) return;
  const lines = error.trim().split("\n");
  const [details, summary, whole] = ["details", "summary", "pre"].map((tag) => document.createElement(tag));
  summary.textContent = lines.at(-1);
  whole.textContent = error;
  details.append(summary, whole);
  cell.append(details);
}

function showProcess(row, role, worker) {
  const cell = (name) => row.querySelector(`td.${name}`);
  row.dataset.state = role.state;
  put(cell("name"), role.name);
  put(cell("state").lastChild, shown(role.state, "text"));
  put(cell("pid"), role.pid ? String(role.pid) : UNKNOWN);
  for (const name of ["p50", "p99"]) {
    put(cell(name), worker ? shown(at(worker, `latency_ms.${name}`), "ms") : "");
  }
  put(cell("weights"), worker ? shown(worker.weights_version, "count") : "");
  for (const name of ["p50", "p99", "weights"]) cell(name).classList.toggle("blank", !worker);
  put(cell("restarts"), shown(role.restarts, "count"));
  showError(cell("error"), role.last_error);
}

function showProcesses(roles, workers) {
  const seen = new Set();
  for (const role of roles) {
    const key = role.name;
    const row = rows.get(key) ?? newRow();
    rows.set(key, row);
    seen.add(key);
    showProcess(row, role, role.role === "inference" ? workers.find((worker) => worker.id === role.index) : null);
    if (row.parentNode === null || $("#processes").children[seen.size - 1] !== row) {
      $("#processes").insertBefore(row, $("#processes").children[seen.size - 1] ?? null);
    }
  }
  for (const [key, row] of rows) {
    if (!seen.has(key)) { row.remove(); rows.delete(key); }
  }
}

// Charts

const charts = all("canvas.chart").map((canvas) => ({ canvas, points: [] }));

function remember(stats) {
  const now = performance.now() / 1000;
  for (const { canvas, points } of charts) {
    if (points.length && now - points.at(-1)[0] < 1) continue;
    points.push([now, at(stats, canvas.dataset.figureChart)]);
    while (points[0][0] < now - CHART_SECONDS) points.shift();
  }
}

function bounds(values, floor) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (floor) return [0, Math.max(high * 1.1, Number(floor))];
  const margin = (high - low) * 0.1 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

function draw({ canvas, points }) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const density = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
  }
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(name).trim();
  const format = (value) => FORMATS[canvas.dataset.format](value);
  const pen = canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  const known = points.filter(([, value]) => value !== null).map(([, value]) => value);
  const latest = points.at(-1)?.[1] ?? null;
  canvas.setAttribute("aria-label", `${canvas.previousElementSibling.textContent}: now ${latest === null ? UNKNOWN : format(latest)}`);
  if (!known.length) {
    pen.fillStyle = colour("--soft");
    pen.fillText(UNKNOWN, 2, height / 2);
    return;
  }
  const [low, high] = bounds(known, canvas.dataset.floor);
  const [left, right, top, bottom] = [58, width - 6, 10, height - 20];
  const now = points.at(-1)[0];
  const span = Math.min(CHART_SECONDS, Math.max(60, now - points[0][0]));
  const x = (time) => right - ((now - time) / span) * (right - left);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
  pen.strokeStyle = colour("--line");
  pen.fillStyle = colour("--soft");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    const value = low + share * (high - low);
    const level = Math.round(y(value)) + 0.5;
    pen.beginPath(); pen.moveTo(left, level); pen.lineTo(right, level); pen.stroke();
    pen.fillText(format(value), left - 7, level + 4);
  }
  pen.textAlign = "left";
  pen.fillText(span < 120 ? `${Math.round(span)} s ago` : `${Math.round(span / 60)} min ago`, left, height - 4);
  pen.textAlign = "right";
  pen.fillText("now", right, height - 4);
  pen.strokeStyle = pen.fillStyle = colour(canvas.dataset.colour);
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  pen.beginPath();
  let before = null;
  for (const [time, value] of points) {
    // What was not seen (no figure, or no connection) is a gap, not a line.
    if (value !== null) pen[before !== null && time - before < 5 ? "lineTo" : "moveTo"](x(time), y(value));
    before = value === null ? null : time;
  }
  pen.stroke();
  if (latest !== null) {
    pen.beginPath(); pen.arc(x(now), y(latest), 3.5, 0, 2 * Math.PI); pen.fill();
  }
}

const drawAll = () => charts.forEach(draw);
new ResizeObserver(drawAll).observe($(".charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

// Connection

let heard = performance.now();
let lost = false;
let stats = {};
let source = null;
let unauthorized = false;

function connect() {
  source?.close();
  source = new EventSource(`/v1/stats/stream?hz=${STREAM_HZ}`);
  source.onmessage = (event) => {
    heard = performance.now();
    found();
    stats = JSON.parse(event.data);
    remember(stats);
    showFigures(stats);
  };
  source.onerror = () => {
    source.close();
    lose();
    setTimeout(connect, RETRY_MS);
  };
}

function lose() {
  if (!lost) { lost = true; document.body.classList.add("lost"); }
  $("#connection").hidden = false;
  put($("#connection"), unauthorized
    ? "Not authorised: open the address that “rtagent serve” printed."
    : "Connection lost: these figures are old. Trying again …");
  put($("#state"), "connection lost");
  $("#state").dataset.state = "lost";
  document.title = "connection lost · rtagent";
}

function found() {
  document.body.classList.remove("waiting", "lost");
  if (!lost) return;
  lost = false;
  $("#connection").hidden = true;
}

function showStatus(status) {
  if (lost) return;
  put($("#state"), shown(status.state, "text"));
  $("#state").dataset.state = status.state;
  put($("#run-id"), shown(status.run_id, "text"));
  const inaction = at(stats, "actions.inaction_fraction_60s");
  document.title = `${status.state} · inaction ${shown(inaction, "percent")} · rtagent`;
  showProcesses(status.roles ?? [], stats.inference?.workers ?? []);
}

async function followStatus() {
  for (;;) {
    try {
      const response = await fetch("/v1/status", { signal: AbortSignal.timeout(SILENCE_MS) });
      unauthorized = response.status === 401;
      if (response.ok) showStatus(await response.json());
    } catch { unauthorized = false; }
    if (performance.now() - heard > SILENCE_MS) {
      lose();
      if (source.readyState === EventSource.OPEN) { heard = performance.now(); connect(); }
    }
    drawAll();
    await wait(STATUS_MS);
  }
}

// Screen

const screen = $("#screen");
const pen = screen.getContext("2d");

async function fetchScreen() {
  const response = await fetch("/v1/screen.png", { signal: AbortSignal.timeout(SILENCE_MS) });
  $("#no-screen").hidden = response.ok;
  if (!response.ok) {
    pen.clearRect(0, 0, screen.width, screen.height);
    put($("#no-screen"), (await response.json()).detail);
    return RETRY_MS;
  }
  const picture = await createImageBitmap(await response.blob());
  if (screen.width !== picture.width || screen.height !== picture.height) {
    [screen.width, screen.height] = [picture.width, picture.height];
  }
  pen.drawImage(picture, 0, 0);
  picture.close();
  return SCREEN_MS;
}

async function followScreen() {
  for (;;) {
    const began = performance.now();
    let pause = RETRY_MS;
    if (!document.hidden) {
      try { pause = await fetchScreen(); } catch { /* the stream says that the connection is lost */ }
    }
    await wait(Math.max(0, pause - (performance.now() - began)));
  }
}

connect();
followStatus();
followScreen();
