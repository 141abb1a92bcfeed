// Numbers as text. What is not known is "unknown", never 0.

import { UNKNOWN } from "./dom.js";

const count = new Intl.NumberFormat("en");
const fixed = (digits) => {
  const format = new Intl.NumberFormat("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative",
  });
  return (value) => format.format(value);
};

// Keeps a number and its unit on one line.
const SPACE = "\u00a0";

const FORMATS = {
  text: String,
  count: (value) => count.format(value),
  compact: (value) => (value < 10_000 ? count.format(Math.round(value)) : `${fixed(0)(value / 1000)}k`),
  fixed1: fixed(1),
  fixed2: fixed(2),
  fixed4: fixed(4),
  precise: (value) => {
    const size = Math.abs(value);
    return value !== 0 && (size < 1e-3 || size >= 1e9) ? value.toExponential(2) : fixed(4)(value);
  },
  // Of less than a tenth two digits: a small return must not read as nothing, as in the verdicts.
  reward: (value) => {
    const size = Math.abs(value);
    if (size >= 1e9) return value.toExponential(2);
    return value === 0 || size >= 0.1 ? fixed(2)(value) : String(Number(value.toPrecision(2)));
  },
  // Nearly nothing must not read as nothing, nor nearly all as all: as in the verdicts.
  percent: (value) => {
    const part = 100 * (value > 0 && value < 1 ? Math.min(0.9999, Math.max(0.0001, value)) : value);
    return `${fixed(part < 10 || (part > 99.9 && part < 100) ? 2 : 1)(part)}${SPACE}%`;
  },
  ms: (value) => `${fixed(Math.abs(value) < 10 ? 2 : 1)(value)}${SPACE}ms`,
  us: (value) => (value < 1000 ? `${fixed(0)(value)}${SPACE}µs` : `${fixed(2)(value / 1000)}${SPACE}ms`),
  seconds: (value) => `${value < 100 ? fixed(1)(value) : count.format(Math.round(value))}${SPACE}s`,
  ticks: (value) => `${fixed(value % 1 ? 1 : 0)(value)} ${value === 1 ? "tick" : "ticks"}`,
  bytes: (value) => {
    if (value < 2 ** 20) return `${fixed(0)(value / 2 ** 10)}${SPACE}KiB`;
    return value < 10 * 2 ** 30
      ? `${fixed(0)(value / 2 ** 20)}${SPACE}MiB` : `${fixed(1)(value / 2 ** 30)}${SPACE}GiB`;
  },
  duration: (value) => {
    const seconds = Math.floor(value);
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return parts.map((part) => String(part).padStart(2, "0")).join(":");
  },
};

// The value at a dotted path; null where it is missing.
export const at = (figures, path) =>
  path.split(".").reduce((value, key) => value?.[key], figures) ?? null;

export const shown = (value, format) =>
  (value === null || value === undefined ? UNKNOWN : FORMATS[format](value));

export const plural = (number, one, many) => `${count.format(number)} ${number === 1 ? one : many}`;

// A detail of an event, whatever it is.
export function plain(value, digits = 4) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    return Number.isInteger(value) ? count.format(value) : String(Number(value.toPrecision(digits)));
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

// A setting: all its digits, without those that a conversion adds.
export const exact = (value) => plain(value, 12);
