// What the charts remember: rings of fixed size, so that a page open for weeks does not grow.

import { at } from "./format.js";

export const KEPT_S = 600;
const MOST_MARKERS = 60;

// Times (seconds of the page) and values of one figure; an unknown value is NaN.
export class Series {
  constructor(capacity = KEPT_S) {
    this.times = new Float64Array(capacity);
    this.values = new Float64Array(capacity);
    this.clear();
  }

  clear() {
    this.first = 0;
    this.length = 0;
  }

  add(time, value) {
    const capacity = this.times.length;
    const slot = (this.first + this.length) % capacity;
    this.times[slot] = time;
    this.values[slot] = value ?? NaN;
    if (this.length < capacity) this.length += 1;
    else this.first = (this.first + 1) % capacity;
  }

  // The i-th oldest: [time, value].
  point(i) {
    const slot = (this.first + i) % this.times.length;
    return [this.times[slot], this.values[slot]];
  }

  get latest() {
    return this.length ? this.point(this.length - 1) : null;
  }
}

// One series for each path, a sample a second.
export class History {
  constructor(paths) {
    this.series = new Map(paths.map((path) => [path, new Series()]));
    this.newest = -Infinity;
  }

  // Whether a second has passed and the figures were taken.
  add(now, stats) {
    if (now - this.newest < 0.95) return false;
    this.newest = now;
    for (const [path, series] of this.series) series.add(now, at(stats, path));
    return true;
  }

  clear() {
    this.newest = -Infinity;
    for (const series of this.series.values()) series.clear();
  }
}

// Changes and restarts, to be drawn into every chart.
export class Markers {
  constructor() { this.list = []; }

  // time: seconds of the page; id: of the event, so that none is drawn twice.
  add(id, time, label) {
    if (this.list.some((marker) => marker.id === id)) return;
    this.list.push({ id, time, label });
    this.list.sort((a, b) => a.time - b.time);
    this.list.splice(0, this.list.length - MOST_MARKERS);
  }

  clear() { this.list = []; }
}
