// Learning against the deadline (R3): time against data, batch size, memory, and the reasons.

import { $, put, UNKNOWN } from "./dom.js";
import { palette, prepare } from "./canvas.js";
import { at, plain, shown } from "./format.js";
import { showBar } from "./figures.js";

const MOST_POINTS = 400;
// If a share falls by more than this, a new horizon has begun.
const BACK = 0.03;

let path = [];
let behind = false;

// Where time and data stand: [time ratio, data ratio], from the horizon's start.
function remember(time, data) {
  const last = path.at(-1);
  if (last && (time < last[0] - BACK || data < last[1] - BACK)) path = [];
  if (last && path.length && Math.hypot(time - last[0], data - last[1]) < 0.003) return;
  path.push([time, data]);
  // Every other point is enough to draw the curve.
  if (path.length > MOST_POINTS) path = path.filter((_, i) => i % 2 === 0);
}

export const clearHorizon = () => { path = []; };

// On a hidden page, too.
export function followHorizon(stats) {
  const [time, data] = [at(stats, "r3.time_ratio"), at(stats, "r3.data_ratio")];
  if ((at(stats, "r3.mode") ?? "off") === "off") path = [];
  else if (time !== null && data !== null) remember(time, data);
}

export function showHorizon(stats) {
  const mode = at(stats, "r3.mode") ?? "off";
  const [time, data] = [at(stats, "r3.time_ratio"), at(stats, "r3.data_ratio")];
  $("#horizon").hidden = mode === "off";
  $("#no-horizon").hidden = mode !== "off";
  // Decisions are asked for in the other modes alone.
  if (mode === "off") put($("#decision"), "");
  showBar("time-ratio", time, shown(time, "percent"));
  showBar("data-ratio", data, shown(data, "percent"));
  const { level, headline, detail } = stats.verdicts.schedule;
  behind = level === "watch";
  put($("#pace"), `${headline}: ${detail}.`);
  $("#batch-cap").hidden = at(stats, "r3.batch_cap") === null;
  showMemory(stats);
}

function showMemory(stats) {
  const [used, budget] = [at(stats, "r3.used_bytes"), at(stats, "r3.memory_budget_bytes")];
  const [size, capacity] = [at(stats, "replay.size"), at(stats, "replay.capacity")];
  const limited = budget !== null;
  $("#memory").hidden = !limited;
  $("#no-memory").hidden = limited;
  showBar("memory", limited && used !== null ? used / budget : 0,
    `${shown(used, "bytes")} of ${shown(budget, "bytes")}`);
  showBar("replay", capacity ? size / capacity : 0,
    `${shown(size, "compact")} of ${shown(capacity, "compact")} ticks`);
}

export function drawHorizon() {
  const canvas = $("#path");
  const paper = prepare(canvas);
  if (paper === null) return;
  const { pen, width, height } = paper;
  const colour = palette();
  const [left, right, top, bottom] = [22, width - 8, 8, height - 22];
  const x = (share) => left + Math.min(1.05, share) * (right - left) / 1.05;
  const y = (share) => bottom - Math.min(1.05, share) * (bottom - top) / 1.05;
  pen.strokeStyle = colour.line;
  pen.strokeRect(x(0), y(1), x(1) - x(0), y(0) - y(1));
  pen.setLineDash([4, 4]);
  pen.strokeStyle = colour.soft;
  pen.beginPath(); pen.moveTo(x(0), y(0)); pen.lineTo(x(1), y(1)); pen.stroke();
  pen.setLineDash([]);
  pen.fillStyle = colour.soft;
  pen.textAlign = "center";
  pen.fillText("time used", (left + right) / 2, height - 6);
  pen.save();
  pen.translate(12, (top + bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText("data used", 0, 0);
  pen.restore();
  const last = path.at(-1);
  canvas.setAttribute("aria-label", last
    ? `Horizon: ${shown(last[0], "percent")} of the time, ${shown(last[1], "percent")} of the data used`
    : `Horizon: ${UNKNOWN}`);
  if (!last) return;
  pen.strokeStyle = pen.fillStyle = behind ? colour.watch : colour.good;
  pen.lineWidth = 2;
  pen.beginPath();
  path.forEach(([time, data], i) => pen[i ? "lineTo" : "moveTo"](x(time), y(data)));
  pen.stroke();
  pen.beginPath(); pen.arc(x(last[0]), y(last[1]), 4, 0, 2 * Math.PI); pen.fill();
}

const REASONS = {
  settings: "the settings were changed",
  memory: "limited by memory",
  "out-of-memory": "memory ran out",
  recovery: "memory allows it again",
};

// Why the batch size was changed. The shares are those that the decision compared; of the time, that
// up to the deadline's margin.
export function decisionReason(kind, { before, after, time_ratio, data_ratio }) {
  if (kind in REASONS) return REASONS[kind];
  const state = after > before ? "behind" : "ahead of";
  return `${state} schedule: ${shown(data_ratio, "percent")} of the data used in `
    + `${shown(time_ratio, "percent")} of the time up to the margin`;
}

// The newest decision that changed the batch size, in words.
export function showDecision(decisions) {
  // The first decision of a run has no batch size before it.
  const change = decisions.find(({ before, after }) => before && before !== after);
  if (change) {
    put($("#decision"), `Batch size ${plain(change.before)} → ${plain(change.after)}: `
      + `${decisionReason(change.kind, change)}.`);
  } else {
    put($("#decision"), decisions.length ? "The batch size has not been changed lately." : "");
  }
}
