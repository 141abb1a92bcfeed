// Figures over time: one line per chart, and a labelled marker wherever something was changed.

import { all } from "./dom.js";
import { palette, prepare } from "./canvas.js";
import { shown } from "./format.js";
import { KEPT_S } from "./history.js";

const LEAST_SPAN_S = 60;
const GAP_S = 5;
// Of the axis's labels, so that charts below each other begin at the same place; more for long ones.
const LEAST_GUTTER = 62;
const LABEL_GAP = 7;
const LEVELS = [0, 0.5, 1];
const MARKERS_READ_OUT = 3;

// Half of an even top is whole, too.
export function bounds(values, floor, whole) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const top = Math.max(high * 1.1, Number(floor));
  if (floor && low >= 0) return [0, whole ? 2 * Math.ceil(top / 2) : top];
  const margin = (high - low) * 0.1 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

function drawAxes(pen, area, labels, span) {
  const { left, right, top, bottom } = area;
  const colour = palette();
  pen.strokeStyle = colour.line;
  pen.fillStyle = colour.soft;
  pen.textAlign = "right";
  LEVELS.forEach((share, i) => {
    const level = Math.round(bottom - share * (bottom - top)) + 0.5;
    pen.beginPath(); pen.moveTo(left, level); pen.lineTo(right, level); pen.stroke();
    pen.fillText(labels[i], left - LABEL_GAP, level + 4);
  });
  pen.textAlign = "left";
  pen.fillText(span < 120 ? `${Math.round(span)} s ago` : `${Math.round(span / 60)} min ago`, left, bottom + 16);
  pen.textAlign = "right";
  pen.fillText("now", right, bottom + 16);
}

// Newest first: if two labels would overlap, only the newer one is written.
function drawMarkers(pen, area, markers, x) {
  const { left, right, top, bottom } = area;
  const colour = palette();
  let free = right + 4;
  for (const { time, label } of markers.toReversed()) {
    const place = Math.round(x(time)) + 0.5;
    if (place < left || place > right) continue;
    pen.strokeStyle = colour.ink;
    pen.setLineDash([3, 3]);
    pen.beginPath(); pen.moveTo(place, top - 2); pen.lineTo(place, bottom); pen.stroke();
    pen.setLineDash([]);
    const width = pen.measureText(label).width;
    const start = Math.min(place - 1, free - 6 - width);
    if (start < left || place - start > width + 2) continue;
    pen.fillStyle = colour.ink;
    pen.textAlign = "left";
    pen.fillText(label, start, top - 5);
    free = start;
  }
}

function drawLine(pen, points, x, y) {
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  pen.beginPath();
  let before = null;
  for (const [time, value] of points) {
    const known = !Number.isNaN(value);
    // Without a figure or a connection there is a gap, not a line.
    if (known) pen[before !== null && time - before < GAP_S ? "lineTo" : "moveTo"](x(time), y(value));
    before = known ? time : null;
  }
  pen.stroke();
}

function draw(canvas, points, markers) {
  const paper = prepare(canvas);
  if (paper === null) return;
  const { pen, width, height } = paper;
  const { format, colour, floor, name } = canvas.dataset;
  const known = points.map(([, value]) => value).filter((value) => !Number.isNaN(value));
  const [now, newest] = points.at(-1) ?? [0, NaN];
  const latest = Number.isNaN(newest) ? null : newest;
  const span = Math.min(KEPT_S, Math.max(LEAST_SPAN_S, now - (points[0]?.[0] ?? now)));
  const marked = markers.filter(({ time }) => now - time <= span);
  const changes = marked.slice(-MARKERS_READ_OUT).map(({ label }) => label).join("; ");
  canvas.setAttribute("aria-label", `${name} over time: now ${shown(latest, format)}`
    + (changes && `; marked: ${changes}`));
  if (!known.length) {
    pen.fillStyle = palette().soft;
    pen.textAlign = "center";
    pen.fillText("unknown so far", width / 2, height / 2);
    return;
  }
  const range = bounds(known, floor, format === "compact");
  const labels = LEVELS.map((share) => shown(range[0] + share * (range[1] - range[0]), format));
  const widest = Math.max(...labels.map((label) => pen.measureText(label).width));
  const left = Math.max(LEAST_GUTTER, Math.ceil(widest) + LABEL_GAP);
  const area = { left, right: width - 6, top: 22, bottom: height - 20 };
  const x = (time) => area.right - ((now - time) / span) * (area.right - area.left);
  const y = (value) => area.bottom - ((value - range[0]) / (range[1] - range[0])) * (area.bottom - area.top);
  drawAxes(pen, area, labels, span);
  drawMarkers(pen, area, marked, x);
  pen.strokeStyle = pen.fillStyle = palette()[colour];
  drawLine(pen, points, x, y);
  if (latest !== null) {
    pen.beginPath(); pen.arc(x(now), y(latest), 3.5, 0, 2 * Math.PI); pen.fill();
  }
}

export const chartPaths = () => all("canvas[data-series]").map((canvas) => canvas.dataset.series);

export function drawCharts(history, markers) {
  for (const canvas of all("canvas[data-series]")) {
    draw(canvas, history.series.get(canvas.dataset.series), markers.list);
  }
}
