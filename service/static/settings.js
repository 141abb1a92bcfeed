// One group of settings of the daemon: read with its ETag, changed only if that is still the latest.

import { ask, attempt, Unreachable, wait } from "./connection.js";

const CHANGE_MS = 60_000;
const OPERATION_MS = 500;
// Seconds until a change that is not in force yet is answered, and followed from then on.
const WAIT_S = 2;

const detail = ({ status, body }) => body?.detail ?? `refused with status ${status}`;

// Waits for the end of what takes longer. Gives {result} or {refused}.
async function follow(location, onWaiting) {
  for (;;) {
    const answer = await ask(location);
    if (answer.status !== 200) return { refused: detail(answer) };
    const { state, result, problem } = answer.body;
    if (state === "done") return { result };
    if (state !== "running") return { refused: problem?.detail ?? "refused" };
    onWaiting();
    await wait(OPERATION_MS);
  }
}

// Sends something that changes the daemon. Gives {result, etag}, {stale: true} or {refused: why}.
export async function send(method, path, content, etag, onWaiting) {
  const headers = {
    "content-type": method === "PATCH" ? "application/merge-patch+json" : "application/json",
    prefer: `wait=${WAIT_S}`,
  };
  if (etag) headers["if-match"] = etag;
  try {
    const request = { method, headers, body: JSON.stringify(content), timeout: CHANGE_MS };
    const answer = await ask(path, request);
    if (answer.status === 412) return { stale: true };
    if (answer.status === 202 && answer.location) return await follow(answer.location, onWaiting);
    if (answer.status >= 300 || answer.body === null) return { refused: detail(answer) };
    return { result: answer.body, etag: answer.etag };
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    return { refused: "The daemon does not answer." };
  }
}

export class Settings {
  constructor(path) {
    this.path = path;
    this.values = null;
    this.etag = null;
  }

  // Reads what is in force; whether that went well.
  async load() {
    const { status, body, etag } = await ask(this.path);
    if (status !== 200) return false;
    [this.values, this.etag] = [body, etag];
    return true;
  }

  // Changes what the patch names, if nobody else has changed anything since the last load.
  async change(patch, onWaiting) {
    const outcome = await send("PATCH", this.path, patch, this.etag, onWaiting);
    if (outcome.result) {
      this.values = { ...this.values, ...outcome.result };
      if (outcome.etag) this.etag = outcome.etag;
      else await attempt(() => this.load());
    }
    return outcome;
  }
}
