// Five seconds: four questions, each answered by one sentence, a colour, and a sign.
// The answers come with the figures (`rtagent/telemetry/verdicts.py`).

import { $, put } from "./dom.js";

// The daemon answers the first three; what the newest events tell is added to the fourth.
export function health(verdict, { bad, mended }) {
  if (verdict.level === "bad") return verdict;
  if (bad !== null) return { level: "bad", headline: "Something went wrong", detail: bad };
  if (!mended || verdict.level !== "good") return verdict;
  return { ...verdict, detail: `${verdict.detail.split("; ")[0]}; ${mended}` };
}

export function showVerdict(name, { level, headline, detail }) {
  const card = $(`#verdict-${name}`);
  card.dataset.level = level;
  put($(".headline", card), headline);
  put($(".detail", card), detail);
}

// Old answers must not look like present ones.
export function showNoVerdicts() {
  for (const name of ["acting", "lateness", "learning"]) {
    showVerdict(name, { level: "none", headline: "Not known", detail: "The connection is lost" });
  }
  showVerdict("health", { level: "bad", headline: "Connection lost", detail: "The daemon does not answer" });
}
