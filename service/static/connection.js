// Talks to the daemon: the stream of figures, single requests, and whether the daemon answers.

const REQUEST_MS = 3000;
const SILENCE_MS = 3000;
const CONNECT_MS = 10_000;
const RETRY_MS = 1000;

export const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// No answer came, or only a part of one, or one of a run that has ended: no fault of this program.
export class Unreachable extends Error {}

let runs = 0;

// Another run has begun: answers that are still on their way are of the run before.
export function disregardAnswers() { runs += 1; }

// One request. Gives {status, body, etag}; the body is null where it is not JSON.
export async function ask(path, { method = "GET", body, headers = {}, timeout = REQUEST_MS } = {}) {
  const asked = runs;
  let response;
  let answer = null;
  try {
    response = await fetch(path, { method, headers, body, signal: AbortSignal.timeout(timeout) });
    if ((response.headers.get("content-type") ?? "").includes("json")) answer = await response.json();
  } catch (error) {
    throw new Unreachable(error.message);
  }
  if (asked !== runs) throw new Unreachable("the run that was asked has ended");
  const { status, headers: given } = response;
  return { status, body: answer, etag: given.get("etag") };
}

// Runs a function that asks the daemon; that the daemon cannot be reached is no error of the page.
export async function attempt(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Unreachable)) reportError(error);
  }
}

// Runs a function again and again, never twice at once; if not `hidden`, not on a hidden page.
export async function repeat(milliseconds, work, { hidden = true } = {}) {
  for (;;) {
    const began = performance.now();
    if (hidden || !document.hidden) await attempt(work);
    await wait(Math.max(20, milliseconds - (performance.now() - began)));
  }
}

// The stream of figures. Silence counts as lost, for a dead daemon may leave the socket open.
// Calls onLost again each second while the connection is lost.
export function openStream(hz, { onFigures, onLost, onFound }) {
  let source = null;
  let begun = null;
  let heard = performance.now();
  let lost = false;

  function lose() {
    lost = true;
    onLost();
  }

  function connect() {
    source?.close();
    begun = performance.now();
    source = new EventSource(`/v1/stats/stream?hz=${hz}`);
    source.onmessage = (event) => {
      heard = performance.now();
      if (lost) {
        lost = false;
        onFound();
      }
      onFigures(JSON.parse(event.data));
    };
    source.onerror = () => {
      source.close();
      lose();
      setTimeout(connect, RETRY_MS);
    };
  }

  connect();
  setInterval(() => {
    if (performance.now() - heard < SILENCE_MS) return;
    lose();
    // A request that is never answered, as on a connection that was cut unseen, must not be waited for.
    const patience = source.readyState === EventSource.OPEN ? SILENCE_MS : CONNECT_MS;
    if (source.readyState !== EventSource.CLOSED && performance.now() - begun >= patience) connect();
  }, RETRY_MS);
}
