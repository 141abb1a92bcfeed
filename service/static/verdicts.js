// Five seconds: four questions, each answered by one sentence, a colour, and a sign.

import { $, put } from "./dom.js";
import { at, plural, shown } from "./format.js";

const GOOD_INACTION = 0.02;
const POOR_INACTION = 0.1;
const GOOD_DISAGREEMENT = 0.15;
const POOR_DISAGREEMENT = 0.5;
const TREND_S = 300;
const EARLY_S = 45;
const BUSY = new Set(["running", "stopping"]);
const SHOWN_NAMES = 2;

const graded = (value, good, poor) => (value <= good ? "good" : value <= poor ? "watch" : "bad");

export function acting(stats) {
  const inaction = at(stats, "actions.inaction_fraction_60s");
  const [ready, wanted] = [at(stats, "inference.ready"), at(stats, "inference.processes")];
  const processes = `${shown(ready, "count")} of ${shown(wanted, "count")} processes act`;
  if (inaction === null) {
    return { level: "none", headline: "Not known yet", detail: `No tick in the last minute; ${processes}` };
  }
  return {
    level: graded(inaction, GOOD_INACTION, POOR_INACTION),
    headline: inaction === 1 ? "Acting on no tick" : `Acting on ${shown(1 - inaction, "share")} of ticks`,
    detail: `Inaction ${shown(inaction, "percent")} in the last minute; ${processes}`,
  };
}

export function lateness(stats) {
  const delay = at(stats, "actions.delay_ticks.mean");
  const rate = at(stats, "clock.target_rate_hz");
  const regret = at(stats, "regret.delay");
  if (delay === null) {
    return { level: "none", headline: "Not known yet", detail: "No action in the last minute" };
  }
  const age = rate ? `${shown((1000 * delay) / rate, "ms")} late; ` : "";
  const headline = `Actions are ${shown(Number(delay.toFixed(1)), "ticks")} old`;
  if (regret?.unit !== "disagreement" || regret.value === null) {
    return { level: "none", headline, detail: `${age}what that costs is unknown` };
  }
  return {
    level: graded(regret.value, GOOD_DISAGREEMENT, POOR_DISAGREEMENT),
    headline,
    detail: `${age}without delay ${shown(regret.value, "percent")} would have been other ones`,
  };
}

function direction(series, value) {
  const change = series?.trend(TREND_S, EARLY_S) ?? null;
  if (change === null) return null;
  const least = Math.max(0.02, 0.02 * Math.abs(value));
  return change > least ? "rising" : change < -least ? "falling" : "steady";
}

export function learning(stats, series) {
  const value = at(stats, "episodes.mean_return_100");
  const rate = at(stats, "learning.updates_per_s");
  const pace = `${shown(rate, "fixed1")} updates/s, loss ${shown(at(stats, "learning.loss"), "precise")}`;
  const returned = value === null ? "no episode has ended yet" : `return ${shown(value, "fixed2")}`;
  if (at(stats, "learning.processes") === 0) {
    return { level: "none", headline: "Not learning", detail: `There is no learner; ${returned}` };
  }
  if (at(stats, "learning.paused")) {
    return { level: "watch", headline: "Learning is paused", detail: `By order; ${returned}` };
  }
  if (!at(stats, "learning.updates")) {
    return { level: "none", headline: "Not learning yet", detail: `No update so far; ${returned}` };
  }
  if (rate === null) {
    return { level: "bad", headline: "Learning stands still", detail: `The learners are silent; ${returned}` };
  }
  if (value === null) return { level: "none", headline: "Learning", detail: `No episode has ended yet; ${pace}` };
  const trend = direction(series, value);
  return {
    level: trend === "falling" ? "watch" : "good",
    headline: `Learning: return ${shown(value, "fixed2")}${trend ? ` and ${trend}` : ""}`,
    detail: trend ? `Last 100 episodes; ${pace}` : `Too early for a trend; ${pace}`,
  };
}

function named(roles) {
  if (roles.length > SHOWN_NAMES) return plural(roles.length, "process", "processes");
  return roles.map(({ name }) => name).join(" and ");
}

export function health(status, { bad, mended }) {
  const roles = status.roles ?? [];
  const failed = roles.filter(({ state }) => state === "failed");
  const busy = roles.filter(({ state }) => state !== "failed" && !BUSY.has(state));
  const again = busy.filter(({ restarts }) => restarts > 0);
  const restarts = roles.reduce((sum, role) => sum + (role.restarts ?? 0), 0);
  const so_far = restarts ? plural(restarts, "restart so far", "restarts so far") : "no restarts";
  if (failed.length) {
    return { level: "bad", headline: `${named(failed)} ${failed.length === 1 ? "has" : "have"} failed`,
      detail: String(failed[0].last_error ?? "It gave no reason").trim().split("\n").at(-1) };
  }
  if (bad !== null) return { level: "bad", headline: "Something went wrong", detail: bad };
  if (busy.length) {
    const what = again.length ? "restarting" : "starting";
    return { level: "watch", headline: `${plural(busy.length, "process is", "processes are")} ${what}`,
      detail: `${named(busy)}; ${so_far}` };
  }
  if (status.state === "stopping") return { level: "watch", headline: "The daemon is stopping", detail: "By order" };
  if (!roles.length) return { level: "none", headline: "Not known yet", detail: "No word from the processes" };
  return { level: "good", headline: "Nothing is broken",
    detail: `${plural(roles.length, "process runs", "processes run")}; ${mended ?? so_far}` };
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
