// The lanes of the timeline on a canvas of their own, drawn once for each answer and a little ahead.
// What is seen to move is a copy of it: to draw each mark anew takes many times as long.

import { cleared } from "./canvas.js";
import { drawLanes, GUTTER } from "./lanes.js";

const AHEAD_MS = 300;

const strip = document.createElement("canvas");
let drawn = null;

// Call it when anything but the time has changed.
export const forgetStrip = () => { drawn = null; };

// Copies what is seen from `from` to `to`. The strip moves by whole pixels of the screen, and starts at
// one: else marks would tremble against each other.
export function showLanes(canvas, paper, place, data, view) {
  const scale = (place.right - place.left) / (view.to - view.from);
  const pixels = (scale * canvas.width) / paper.width;
  const looks = `${canvas.width} ${canvas.height} ${scale}`;
  if (drawn === null || drawn.looks !== looks || view.from < drawn.from || view.to > drawn.to) {
    drawn = { looks, from: Math.floor(view.from * pixels) / pixels, to: view.to + AHEAD_MS };
    draw(scale, paper, place, data, view);
  }
  const left = Math.round((GUTTER * canvas.width) / paper.width);
  const first = Math.round((view.from - drawn.from) * pixels);
  const [width, height] = [canvas.width - left, canvas.height];
  paper.pen.save();
  paper.pen.resetTransform();
  paper.pen.drawImage(strip, first, 0, width, height, left, 0, width, height);
  paper.pen.restore();
}

function draw(scale, paper, place, data, view) {
  const right = Math.ceil((drawn.to - drawn.from) * scale) + 2;
  const pen = cleared(strip, right, paper.height);
  drawLanes(pen, { ...place, left: 0, right, x: (time) => (time - drawn.from) * scale }, data, view);
}
