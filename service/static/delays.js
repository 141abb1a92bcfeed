// How old the executed actions were: a histogram of the newest ticks, counted from the timeline.

import { $, put } from "./dom.js";
import { hatch, palette, prepare } from "./canvas.js";
import { plural, shown } from "./format.js";

const KEPT_TICKS = 4096;
const LONGEST = 40;
const NONE = LONGEST + 1;
const NEAR = 12;

// The delays of the newest ticks.
export class Delays {
  constructor() { this.clear(); }

  clear() {
    this.list = [];
    this.newest = -1;
  }

  // Takes the ticks that are newer than those it has seen. Behind a gap, as a hidden page leaves it,
  // it begins anew: what it has is not of the newest ticks any more.
  add({ tick, delay }) {
    if (tick[0] > this.newest + 1) this.clear();
    const fresh = delay.filter((_, i) => tick[i] > this.newest);
    this.list.push(...fresh.map((each) => (each === null ? NONE : Math.min(each, LONGEST))));
    this.list.splice(0, this.list.length - KEPT_TICKS);
    this.newest = Math.max(this.newest, ...tick.slice(-1));
  }

  // How often each occurs.
  counts() {
    const counts = new Array(NONE + 1).fill(0);
    for (const delay of this.list) counts[delay] += 1;
    return counts;
  }
}

// A column for each delay from the smallest to the largest seen, at least 8, starting at 0 unless that
// is far; and one for ticks without an action.
function columns(counts) {
  const seen = counts.map((number, delay) => (number && delay !== NONE ? delay : -1)).filter((delay) => delay >= 0);
  const last = Math.max(7, ...seen);
  const first = seen.length && seen[0] > NEAR ? seen[0] - 2 : 0;
  const list = counts.slice(first, last + 1).map((number, i) => ({
    label: first + i === LONGEST ? `${LONGEST}+` : String(first + i), number,
  }));
  return [...list, { label: "none", number: counts[NONE], none: true }];
}

export function drawDelays(delays) {
  const canvas = $("#delays");
  const paper = prepare(canvas);
  if (paper === null) return;
  const { pen, width, height } = paper;
  const colour = palette();
  const total = delays.list.length;
  put($("#delays-note"), total ? `the newest ${plural(total, "tick", "ticks")}` : "no ticks yet");
  if (!total) {
    canvas.setAttribute("aria-label", "Delays: unknown");
    return;
  }
  const list = columns(delays.counts());
  const [top, bottom] = [18, height - 20];
  const step = width / list.length;
  const most = Math.max(...list.map(({ number }) => number));
  const shares = step >= pen.measureText("88 %").width + 2;
  const needed = pen.measureText(list.at(-2).label).width + 6;
  const last = width - Math.max(step / 2, 14);
  pen.textAlign = "center";
  pen.strokeStyle = colour.line;
  pen.beginPath(); pen.moveTo(0, bottom + 0.5); pen.lineTo(width, bottom + 0.5); pen.stroke();
  list.forEach(({ label, number, none }, i) => {
    const centre = (i + 0.5) * step;
    const wide = Math.min(step - 3, 46);
    const tall = number ? Math.max(2, (number / most) * (bottom - top)) : 0;
    pen.fillStyle = none ? colour.bad : colour.good;
    pen.fillRect(centre - wide / 2, bottom - tall, wide, tall);
    if (none && tall) hatch(pen, centre - wide / 2, bottom - tall, wide, tall, colour.card);
    const share = number / total;
    pen.fillStyle = colour.ink;
    if (share >= 0.005 && shares) pen.fillText(`${Math.round(100 * share)} %`, centre, bottom - tall - 5);
    pen.fillStyle = colour.soft;
    const room = i % Math.ceil(needed / step) === 0 && last - centre >= 16 + needed / 2;
    if (room || none) pen.fillText(label, none ? last : centre, height - 5);
  });
  const said = list.filter(({ number }) => number).map(({ label, number, none }) =>
    `${none ? "no action" : `${label} ${label === "1" ? "tick" : "ticks"}`} ${shown(number / total, "percent")}`);
  canvas.setAttribute("aria-label", `Delays of the newest ${total} ticks: ${said.join(", ")}`);
}
