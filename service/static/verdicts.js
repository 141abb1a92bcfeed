// Four questions that a look at the page answers, each with a sentence, a colour and a sign.
// The answers come with the figures (`rtagent/telemetry/verdicts.py`).

import { $, put } from "./dom.js";

// The answer to the fourth question, with the newest events.
export function health(verdict, { trouble, recovery }) {
  if (verdict.level === "bad") return verdict;
  if (trouble) return { level: "bad", headline: "Something went wrong", detail: trouble };
  if (!recovery || verdict.level !== "good") return verdict;
  return { ...verdict, detail: `${verdict.detail.split("; ")[0]}; ${recovery}` };
}

export function showVerdict(name, { level, headline, detail }) {
  const card = $(`#verdict-${name}`);
  card.dataset.level = level;
  put($(".headline", card), headline);
  put($(".detail", card), detail);
}

// Old answers must not look like present ones.
export function showNoVerdicts(why) {
  for (const name of ["acting", "lateness", "learning"]) {
    showVerdict(name, { level: "none", headline: "Not known", detail: "The connection is lost" });
  }
  showVerdict("health", { level: "bad", headline: "Connection lost", detail: why });
}
