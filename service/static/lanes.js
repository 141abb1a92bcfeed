// Draws the stagger timeline: a lane per inference process, the ticks as a ruler below.

import { hatch, palette } from "./canvas.js";

export const GUTTER = 34;
const RULER = 16;
const AXIS = 18;
const TOP = 20;
const THICKEST = 36;
const OUTLIER = 1.75;
const OUTLIER_TICKS = 0.25;
const LABEL_ROOM = 14;
const STATE_ROOM = 16;

function median(values) {
  const [sorted, middle] = [values.toSorted((a, b) => a - b), values.length / 2];
  return values.length ? (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2 : null;
}

// What a window of the timeline holds, counted: for the drawing, the caption and screen readers.
export function summarise(data, from, to) {
  const sources = { agent: 0, reused: 0, default: 0 };
  data.ticks.at_ms.forEach((time, i) => {
    if (time >= from && time <= to) sources[data.ticks.source[i]] += 1;
  });
  const lengths = [];
  data.bars.end_ms.forEach((end, i) => {
    if (end >= from && end <= to) lengths.push(end - data.bars.start_ms[i]);
  });
  const middle = median(lengths);
  return {
    ...sources,
    ticks: sources.agent + sources.reused + sources.default,
    median: middle,
    longest: lengths.length ? Math.max(...lengths) : null,
    outliers: lengths.filter((length) => isOutlier(length, middle, data.tick_ms)).length,
  };
}

// Much longer than usual, and by so much that it matters to a tick.
const isOutlier = (length, middle, tick) =>
  length > OUTLIER * middle && length - middle > OUTLIER_TICKS * tick;

// Where everything goes, in CSS pixels.
export function layout(width, height, data, from, to) {
  const ids = data.workers.map(({ id }) => id);
  const bottom = height - AXIS - RULER - 6;
  const lane = (bottom - TOP) / Math.max(1, ids.length);
  return {
    left: GUTTER, right: width - 1, top: TOP, bottom, lane,
    ruler: bottom + 6,
    rows: new Map(ids.map((id, i) => [id, TOP + (i + 0.5) * lane])),
    thick: Math.max(2, Math.floor(Math.min(THICKEST, lane * 0.66))),
    x: (time) => GUTTER + ((time - from) / (to - from)) * (width - 1 - GUTTER),
  };
}

// What moves with time.
export function drawLanes(pen, place, data, view) {
  drawTicks(pen, place, data);
  drawBars(pen, place, data, summarise(data, view.from, view.to).median);
  drawMarks(pen, place, view.markers);
}

// What stays where it is.
export function drawFrame(pen, place, data, view) {
  drawAxis(pen, place, view);
  drawNames(pen, place, data);
}

function drawNames(pen, place, data) {
  const colour = palette();
  const idle = data.workers.filter(({ state }) => state !== "running");
  const crowded = (y) => idle.some(({ id }) => Math.abs(place.rows.get(id) - y) < LABEL_ROOM);
  const every = Math.max(1, Math.ceil(LABEL_ROOM / place.lane));
  pen.textAlign = "right";
  pen.fillStyle = colour.soft;
  data.workers.forEach(({ id }, i) => {
    const y = place.rows.get(id);
    if (i % every === 0 && !crowded(y)) pen.fillText(String(id), place.left - 8, y + 4);
  });
  // Of labels that would cover each other only the first is drawn; the table has all.
  let free = 0;
  for (const { id, state } of idle) {
    const y = place.rows.get(id);
    if (y < free) continue;
    free = y + STATE_ROOM;
    const text = ` ${id}: ${state} `;
    const width = pen.measureText(text).width;
    pen.fillStyle = colour.bad;
    pen.textAlign = "right";
    pen.fillText(`! ${id}`, place.left - 8, y + 4);
    pen.textAlign = "left";
    pen.fillRect(place.left, y - STATE_ROOM / 2, width, STATE_ROOM);
    pen.fillStyle = colour.card;
    pen.fillText(text, place.left, y + 4);
  }
}

// Agent: a thin line. Re-used: a hollow box. Default: a full red box with a cross, and a red band
// through the lanes, so that a lost tick is seen from afar and without colour.
function drawTicks(pen, place, data) {
  const colour = palette();
  const { x, ruler, top, bottom } = place;
  const step = x(data.tick_ms) - x(0);
  const wide = Math.max(2, Math.min(14, step - 2));
  pen.strokeStyle = colour.line;
  pen.beginPath();
  pen.moveTo(place.left, ruler + RULER + 0.5);
  pen.lineTo(place.right, ruler + RULER + 0.5);
  data.ticks.at_ms.forEach((time) => {
    if (step < 5) return;
    pen.moveTo(x(time), top);
    pen.lineTo(x(time), bottom);
  });
  pen.stroke();
  data.ticks.at_ms.forEach((time, i) => {
    const [left, source] = [x(time), data.ticks.source[i]];
    if (source === "default") {
      pen.fillStyle = colour.band;
      pen.fillRect(left, top, Math.max(2, step), bottom - top);
      pen.fillStyle = colour.bad;
      pen.fillRect(left, ruler - 2, wide, RULER + 2);
      cross(pen, left + wide / 2, ruler + RULER / 2 - 1, Math.min(3, wide / 2 - 0.5), colour.card);
    } else if (source === "reused") {
      pen.strokeStyle = colour.watch;
      pen.lineWidth = 1.5;
      pen.strokeRect(left + 0.75, ruler + 4, Math.max(1, wide - 1.5), RULER - 5);
      pen.lineWidth = 1;
    } else {
      pen.fillStyle = colour.good;
      pen.fillRect(left, ruler + RULER - 9, Math.min(2, wide), 9);
    }
  });
}

function cross(pen, x, y, size, colour) {
  if (size < 1) return;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size);
  pen.moveTo(x + size, y - size); pen.lineTo(x - size, y + size);
  pen.stroke();
  pen.lineWidth = 1;
}

// From the observation to the registered action, which the dark end marks.
function drawBars(pen, place, data, middle) {
  const colour = palette();
  data.bars.worker.forEach((worker, i) => {
    const row = place.rows.get(worker);
    if (row === undefined) return;
    const [start, end] = [data.bars.start_ms[i], data.bars.end_ms[i]];
    const [left, wide] = [place.x(start), Math.max(2, place.x(end) - place.x(start) - 1)];
    const late = isOutlier(end - start, middle, data.tick_ms);
    const y = Math.round(row - place.thick / 2);
    pen.globalAlpha = 0.45;
    pen.fillStyle = late ? colour.watch : colour.good;
    pen.fillRect(left, y, wide, place.thick);
    pen.globalAlpha = 1;
    if (late) hatch(pen, left, y, wide, place.thick, colour.card);
    pen.fillRect(left + Math.max(0, wide - 3), y, Math.min(3, wide), place.thick);
  });
}

function drawMarks(pen, place, markers) {
  const colour = palette();
  pen.textAlign = "left";
  let free = Infinity;
  for (const { time, label } of markers.toReversed()) {
    const at = Math.round(place.x(time)) + 0.5;
    if (at < place.left - 200 || at > place.right) continue;
    pen.strokeStyle = pen.fillStyle = colour.ink;
    pen.setLineDash([3, 3]);
    pen.beginPath(); pen.moveTo(at, 4); pen.lineTo(at, place.bottom); pen.stroke();
    pen.setLineDash([]);
    if (at + 4 + pen.measureText(label).width < free) {
      pen.fillText(label, at + 4, 13);
      free = at - 4;
    }
  }
}

function drawAxis(pen, place, { from, to, now }) {
  pen.fillStyle = palette().soft;
  pen.textAlign = "center";
  const every = to - from > 3000 ? 2000 : to - from > 1200 ? 500 : to - from > 400 ? 200 : 100;
  for (let age = every * Math.ceil((now - to) / every); now - age > from; age += every) {
    const at = place.x(now - age);
    const text = age === 0 ? "now" : `${age / 1000} s ago`;
    if (at > place.left + 26 && at < place.right - 26) pen.fillText(text, at, place.ruler + RULER + 14);
  }
}
