// Single figures: every element that names one, the bars, the regrets, the injected latency.

import { $, all, put, UNKNOWN } from "./dom.js";
import { at, shown } from "./format.js";

const bound = all("[data-figure]");
const conditional = all("[data-only-with]");

export function showFigures(stats) {
  for (const element of bound) {
    put(element, shown(at(stats, element.dataset.figure), element.dataset.format));
  }
  for (const element of conditional) {
    element.hidden = !element.dataset.onlyWith.split(" ").some((path) => at(stats, path));
  }
  showSources(stats);
  showInjected(stats.inference);
  showRegrets(stats);
  put($("#evenness"), stats.verdicts.evenness.headline);
  $("#paused").hidden = at(stats, "learning.paused") !== true;
}

function showSources(stats) {
  const sources = ["agent", "reused", "default"].map((name) => [name, at(stats, `actions.${name}`) ?? 0]);
  const total = sources.reduce((sum, [, ticks]) => sum + ticks, 0);
  for (const [name, ticks] of sources) {
    setWidth($(`#sources .${name}`), total ? ticks / total : 0);
  }
}

// Every figure that injected latency touches says so.
function showInjected({ injected_latency_ms: latency, injected_latency_distribution: drawn }) {
  const injected = latency > 0;
  $("#injected").hidden = !injected;
  for (const tag of all(".tag.injected")) {
    tag.hidden = !injected;
    if (injected) put(tag, `injected: ${shown(latency, "ms")}`);
  }
  if (injected) {
    put($("#injected"), `Injected latency: inference is padded to ${shown(latency, "ms")} (${drawn}), `
      + "so timing figures show that latency and not this machine's own.");
  }
}

function regretValue({ value, unit }) {
  if (value === null || value === undefined) return UNKNOWN;
  const whole = Number.isInteger(value) && Math.abs(value) < 1e9;
  return `${shown(value, whole ? "count" : "precise")} ${unit ?? ""}`.trim();
}

function showRegrets(stats) {
  for (const row of all("[data-regret]")) {
    const regret = at(stats, row.dataset.regret) ?? {};
    put($(".value", row), regretValue(regret));
    put($(".basis", row), regret.kind ?? UNKNOWN);
  }
}

// A share of a bar, in steps too small to be seen, so that few of them have to be drawn.
function setWidth(part, share) {
  const width = `${Math.round(1000 * share) / 10}%`;
  if (part.style.width !== width) part.style.width = width;
}

// A bar with its text: the share that is used.
export function showBar(id, share, text) {
  const bar = $(`#${id}`);
  setWidth($("i", bar), Math.max(0, Math.min(1, share ?? 0)));
  $("i", bar).className = share > 1 ? "bad" : "";
  put($("b", bar), text);
}
