// Canvases that follow their size, the screen's density and the colour scheme.

import { all } from "./dom.js";

const FONT = "12px system-ui, sans-serif";
const NAMES = ["ink", "soft", "line", "card", "good", "watch", "bad", "band"];
let colours = null;

// The style sheet's colours. Asked for at every drawing, read once for each scheme.
export function palette() {
  if (colours === null) {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return colours;
}

// A pen in CSS pixels on a cleared canvas, with the canvas's size; null while it is not laid out.
export function prepare(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  return { pen: cleared(canvas, width, height), width, height };
}

// A pen in CSS pixels on a cleared canvas of this size.
export function cleared(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * density), Math.round(height * density)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  // Opaque: nothing behind it has to be drawn, nor to be mixed with it.
  const pen = canvas.getContext("2d", { alpha: false });
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.fillStyle = palette().card;
  pen.fillRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "alphabetic";
  pen.lineWidth = 1;
  pen.setLineDash([]);
  return pen;
}

// Calls back when size or colours have changed.
export function whenLookChanges(draw) {
  const observer = new ResizeObserver(draw);
  for (const plot of all(".plot")) observer.observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours = null;
    draw();
  });
}

// Diagonal lines, so that colour is not the only sign.
export function hatch(pen, x, y, width, height, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (let at = x - height; at < x + width; at += 6) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}
