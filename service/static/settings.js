// The daemon's settings: read with their ETag, changed only if that is still the latest.

import { ask, Unreachable } from "./connection.js";

const PATH = "/v1/config";
// A little more than the daemon takes to answer; a checkpoint with the replay takes minutes.
const TIMEOUT_MS = { PATCH: 40_000, POST: 610_000 };

const detail = ({ status, body }) => body?.detail ?? `refused with status ${status}`;

// Sends something that changes the daemon. Gives {result, etag}, {stale: true}, {late: why} or
// {refused: why}.
export async function send(method, path, content, etag) {
  const headers = {
    "content-type": method === "PATCH" ? "application/merge-patch+json" : "application/json",
  };
  if (etag) headers["if-match"] = etag;
  try {
    const request = { method, headers, body: JSON.stringify(content), timeout: TIMEOUT_MS[method] };
    const answer = await ask(path, request);
    if (answer.status === 412) return { stale: true };
    if (answer.body?.type?.endsWith(":not-in-force")) return { late: detail(answer) };
    if (answer.status >= 300 || answer.body === null) return { refused: detail(answer) };
    return { result: answer.body, etag: answer.etag };
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    return { refused: "The daemon does not answer." };
  }
}

export class Settings {
  constructor() {
    this.values = null;
    this.etag = null;
  }

  // Reads what is in force; whether that went well.
  async load() {
    const { status, body, etag } = await ask(PATH);
    if (status !== 200) return false;
    [this.values, this.etag] = [body, etag];
    return true;
  }

  // Changes what the patch names, if nobody else has changed anything since the last load.
  async change(patch) {
    const outcome = await send("PATCH", PATH, patch, this.etag);
    if (outcome.result) [this.values, this.etag] = [outcome.result, outcome.etag];
    return outcome;
  }
}
