// Events as sentences, and as short labels for the charts. Unknown kinds get a generic sentence.

import { exact, plain, plural, shown } from "./format.js";
import { decisionReason } from "./horizon.js";

const KNOWN = new Set(["id", "at", "uptime_s", "kind", "source", "level"]);
const lastLine = (text) => String(text ?? "").trim().split("\n").at(-1);
const seconds = (value) => shown(value, "seconds");
// Whether the supervisor alone was held up is unknown (null) where no tick was due meanwhile, and after
// so long that the rows of that time are gone.
const HELD_UP = new Map([[true, "The supervisor was held up"], [null, "The supervisor, or everything, was held up"]]);
const heldUp = (alone) => HELD_UP.get(alone) ?? "Everything stood still";
const bytes = (value) => (value === null || value === undefined ? "no limit" : shown(value, "bytes"));

function changes({ before = {}, after = {} }) {
  return Object.keys(after).map((name) =>
    `${name.replaceAll("_", " ")} ${exact(before[name])} → ${exact(after[name])}`).join(", ");
}

function generic(event) {
  const details = Object.entries(event).filter(([name]) => !KNOWN.has(name));
  const said = details.map(([name, value]) => `${name.replaceAll("_", " ")} ${plain(value)}`);
  const kind = event.kind.replaceAll("_", " ");
  return [event.source === null ? kind : `${event.source}: ${kind}`, ...said].join(", ");
}

const SENTENCES = {
  started: (e) => `Started with ${e.environment}${e.resumed ? `, from ${plain(e.resumed)}` : ""}`,
  world: (e) => e.news,
  observations: (e) => `The agent sees ${e.seen}`,
  set: (e) => `${e.source}: ${changes(e)}${e.by ? ` (by ${e.by})` : ""}`,
  in_force: (e) => `${e.source}: ${e.settings.map((name) => name.replaceAll("_", " ")).join(", ")} in force now`,
  rescaled: (e) => `Inference processes ${plain(e.before)} → ${plain(e.after)}: ${e.why ?? "automatic"}`,
  died: (e) => `${e.source} died and is started again: ${lastLine(e.error) || "it gave no reason"}`,
  failed: (e) => `${e.source} has failed${
    e.again_in_s === undefined ? "" : ` and is tried again in ${seconds(e.again_in_s)}`
  }: ${lastLine(e.error) || "it gave no reason"}`,
  restarted: (e) => `${e.source} is back (restart ${plain(e.restarts)})`,
  paused: (e) => `${heldUp(e.alone)} for ${seconds(e.seconds)}`,
  internal_error: (e) => `An internal error of rtagent (${e.duty}): ${lastLine(e.error)}`,
  slip: (e) => `The clock gave up on catching up: ${plural(e.slips, "slip", "slips")} so far`,
  environment_fault: (e) =>
    `${e.reason}; ${plural(e.faults, "episode", "episodes")} cut short so far`,
  checkpoint: (e) => `Checkpoint ${e.file} written in ${seconds(e.seconds)}`,
  checkpoint_failed: (e) => `No checkpoint could be written: ${e.reason}`,
  checkpoint_corrupt: (e) => `A checkpoint was skipped: ${e.reason}`,
  replay_failed: (e) => `The replay could not be saved: ${e.reason}`,
  replay_damaged: (e) => `A part of the saved replay could not be restored: ${e.problem}`,
  pruned: (e) => `${plural(e.runs, "folder of an old run", "folders of old runs")} removed`,
  run_record_failed: (e) => `The record of this run could not be written: ${e.reason}`,
  // Told by the learner, and then by what divides the memory.
  out_of_memory: (e) => ("batch_size" in e
    ? `${e.source} ran out of memory: batch size ${plain(e.batch_size)} → ${plain(e.next_batch_size)}`
    : `A batch did not fit, so memory was halved: replay ${bytes(e.replay_bytes)}, `
      + `batches ${bytes(e.batch_bytes)}`),
  memory_pressure: (e) => `${e.where === "machine" ? "The machine" : e.where} runs short of memory, `
    + `so memory was halved: replay ${bytes(e.replay_bytes)}, batches ${bytes(e.batch_bytes)}`,
  memory_division: (e) => (e.budget_bytes < 0
    ? `Without a memory budget the replay may keep ${plain(e.ticks_limit)} ticks`
    : `Memory was divided again: replay ${bytes(e.replay_bytes)}, batches ${bytes(e.batch_bytes)}`),
  memory_budget_exceeded: (e) =>
    `The memory budget is exceeded: ${bytes(e.used_bytes)} used of ${bytes(e.budget_bytes)}`,
  memory_recovered: () => "The machine has memory to spare again",
  memory: (e) => `Too little memory: ${e.error}`,
  horizon: (e) => `Training horizon ${plain(e.horizon)} ${e.outcome.replace("early-exit", "ended early")} after `
    + `${seconds(e.elapsed_s)} of ${seconds(e.deadline_s)}, ${plain(e.consumed)} of ${plain(e.data_budget)} samples`,
  batch_size: (e) => `Batch size ${plain(e.before)} → ${plain(e.after)}: ${decisionReason(e.why, e)}`,
  evaluation: (e) => `Evaluation after ${plain(e.updates)} updates: mean return ${shown(e.mean_return, "reward")}, `
    + "greedy and in a paused world",
  placement: (e) => `${e.source} plans updates of ${e.batch_size} transitions on `
    + `${e.cores === 1 ? "one core" : "two cores"}: predicted are ${shown(e.predicted_ms, "fixed2")} ms`
    + (e.cores === 1 ? "" : `, and ${shown(e.one_core_ms, "fixed2")} ms on one`),
  placement_failed: (e) => `${e.source} learns without a plan for its updates: ${e.error}`,
  cuda_graph_refused: (e) => `${e.source} computes gradients without a CUDA graph, and more slowly: ${e.reason}`,
  placement_taken_back: (e) => `${e.source} updates without a plan again: that is faster`,
  placement_restored: (e) => `${e.source} follows its plan for updates again: that is faster`,
  update_skipped: (e) => `${e.source} skipped an update with values that are not finite: loss ${e.loss}, `
    + `norm of the gradient ${e.gradient_norm}`,
  precision: (e) => `Learners compute in ${e.chosen}, the fastest here for ${plain(e.batch_size)} transitions: `
    + Object.entries(e.ms).map(([name, ms]) => `${name} ${plain(ms)} ms`).join(", "),
  demonstrations: (e) => {
    if (e.skipped) return `Demonstrations were not loaded: ${e.skipped}`;
    return `${plain(e.ticks)} demonstrated ticks loaded from ${e.path}, for a delay of ${plural(e.delay, "tick", "ticks")}`;
  },
  rollout_lost: (e) => `${e.source} lost a rollout of ${plain(e.decisions)} decisions: it took `
    + `${plain(e.ticks)} ticks, and the replay keeps ${plain(e.replay_ticks)}`,
  remote_lost: (e) => `The policy server gives no actions: ${e.reason}`,
  remote_answers: (e) => `The policy server at ${e.address} gives actions`,
  recording_failed: (e) => `The run's log (${e.where}) cannot be written: ${e.reason}`,
  events_not_kept: (e) => `Events cannot be written to the disk: ${e.reason}`,
  events_kept_again: () => "Events are written to the disk again",
};

const LEVELS = { error: "bad", warning: "watch" };

const MARKED = {
  set: (e) => `${e.source}: ${changes(e)}`,
  in_force: SENTENCES.in_force,
  rescaled: (e) => `${e.source}: processes ${plain(e.before)} → ${plain(e.after)}`,
  died: (e) => `${e.source} died`,
  failed: (e) => `${e.source} failed`,
  restarted: (e) => `${e.source} back`,
  out_of_memory: () => "out of memory",
  slip: () => "slip",
};

export const sentence = (event) => (SENTENCES[event.kind] ?? generic)(event);

export const level = (event) => LEVELS[event.level] ?? "none";

// The label of a chart's marker; null: charts do not mark this event.
export const markerLabel = (event) => MARKED[event.kind]?.(event) ?? null;
