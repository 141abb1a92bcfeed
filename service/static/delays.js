// How old the executed actions were: a histogram of the newest ticks, counted from the timeline.

import { $, put } from "./dom.js";
import { hatch, palette, prepare } from "./canvas.js";
import { plural, shown } from "./format.js";

const KEPT_TICKS = 4096;
const LONGEST = 40;
const NONE = LONGEST + 1;
const NEAR = 12;

// The delays of the newest ticks in a ring, and how often each occurs in it.
export class Delays {
  constructor() {
    this.ring = new Uint8Array(KEPT_TICKS);
    this.clear();
  }

  clear() {
    this.counts = new Array(NONE + 1).fill(0);
    this.next = this.length = 0;
    this.newest = -1;
  }

  // Takes the ticks that are newer than those it has seen. Behind a gap, as a hidden page leaves it,
  // it begins anew: what it has is not of the newest ticks any more.
  add(ticks) {
    if (ticks.tick[0] > this.newest + 1) this.clear();
    for (let i = 0; i < ticks.tick.length; i += 1) {
      if (ticks.tick[i] <= this.newest) continue;
      this.newest = ticks.tick[i];
      this.put(ticks.delay[i] === null ? NONE : Math.min(ticks.delay[i], LONGEST));
    }
  }

  put(delay) {
    if (this.length === KEPT_TICKS) this.counts[this.ring[this.next]] -= 1;
    else this.length += 1;
    this.ring[this.next] = delay;
    this.counts[delay] += 1;
    this.next = (this.next + 1) % KEPT_TICKS;
  }
}

// A column for each delay from the smallest to the largest seen, at least 8, starting at 0 unless that
// is far; and one for ticks without an action.
function columns(delays) {
  const seen = delays.counts.map((number, delay) => (number && delay !== NONE ? delay : -1)).filter((delay) => delay >= 0);
  const last = Math.max(7, ...seen);
  const first = seen.length && seen[0] > NEAR ? seen[0] - 2 : 0;
  const list = delays.counts.slice(first, last + 1).map((number, i) => ({
    label: first + i === LONGEST ? `${LONGEST}+` : String(first + i), number,
  }));
  return [...list, { label: "none", number: delays.counts[NONE], none: true }];
}

export function drawDelays(delays) {
  const canvas = $("#delays");
  const paper = prepare(canvas);
  if (paper === null) return;
  const { pen, width, height } = paper;
  const colour = palette();
  put($("#delays-note"), delays.length
    ? `the newest ${plural(delays.length, "tick", "ticks")}` : "no ticks yet");
  if (!delays.length) {
    canvas.setAttribute("aria-label", "Delays: unknown");
    return;
  }
  const list = columns(delays);
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
    const share = number / delays.length;
    pen.fillStyle = colour.ink;
    if (share >= 0.005 && shares) pen.fillText(`${Math.round(100 * share)} %`, centre, bottom - tall - 5);
    pen.fillStyle = colour.soft;
    const room = i % Math.ceil(needed / step) === 0 && last - centre >= 16 + needed / 2;
    if (room || none) pen.fillText(label, none ? last : centre, height - 5);
  });
  const said = list.filter(({ number }) => number).map(({ label, number, none }) =>
    `${none ? "no action" : `${label} ${label === "1" ? "tick" : "ticks"}`} ${shown(number / delays.length, "percent")}`);
  canvas.setAttribute("aria-label", `Delays of the newest ${delays.length} ticks: ${said.join(", ")}`);
}
