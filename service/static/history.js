// What the charts remember: the last minutes alone, so that a page open for weeks does not grow.

import { at } from "./format.js";

export const KEPT_S = 600;
const MOST_MARKERS = 60;

// For each path the points of one figure, oldest first, a sample a second: [time, value], with seconds
// of the page; an unknown value is NaN.
export class History {
  constructor(paths) {
    this.series = new Map(paths.map((path) => [path, []]));
    this.newest = -Infinity;
  }

  // Whether a second has passed and the figures were taken.
  add(now, stats) {
    if (now - this.newest < 0.95) return false;
    this.newest = now;
    for (const [path, points] of this.series) {
      points.push([now, at(stats, path) ?? NaN]);
      while (now - points[0][0] > KEPT_S) points.shift();
    }
    return true;
  }

  clear() {
    this.newest = -Infinity;
    for (const path of this.series.keys()) this.series.set(path, []);
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
