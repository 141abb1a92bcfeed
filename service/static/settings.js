// The daemon's settings: read with their ETag, changed only if that is still the latest.

import { ask, Unreachable } from "./connection.js";

const PATH = "/v1/config";
// A little more than the daemon takes to answer; a checkpoint with the replay takes minutes.
const TIMEOUT_MS = { PATCH: 40_000, POST: 610_000 };

// Sends something that changes the daemon. Gives {result, etag}; {stale: true}, {refused: why}: nothing
// was changed; {late: why}; or {unknown: true}: no answer tells whether it was changed.
export async function send(method, path, content, ifMatch) {
  const headers = {
    "content-type": method === "PATCH" ? "application/merge-patch+json" : "application/json",
  };
  if (ifMatch) headers["if-match"] = ifMatch;
  const request = { method, headers, body: JSON.stringify(content), timeout: TIMEOUT_MS[method] };
  let answer;
  try {
    answer = await ask(path, request);
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    return { unknown: true };
  }
  const { status, body, etag } = answer;
  if (status < 300 && body) return { result: body, etag };
  if (status === 412) return { stale: true };
  const kind = body?.type?.split(":").at(-1);
  // A service that failed on the request or has lost the supervisor cannot know, nor can a proxy
  // that answers in its place.
  if (!kind || status === 500 || kind === "supervisor-gone") return { unknown: true };
  return kind === "not-in-force" ? { late: body.detail } : { refused: body.detail };
}

export class Settings {
  constructor() {
    this.values = null;
    this.etag = null;
  }

  // Reads the settings in force; gives whether they are others than before.
  async load() {
    const { status, body, etag } = await ask(PATH);
    if (status !== 200) return false;
    const changed = this.values === null || etag !== this.etag;
    [this.values, this.etag] = [body, etag];
    return changed;
  }

  // Changes the settings in the patch, unless others have been changed since the last load.
  async change(patch) {
    const outcome = await send("PATCH", PATH, patch, this.etag);
    if (outcome.result) [this.values, this.etag] = [outcome.result, outcome.etag];
    return outcome;
  }
}
