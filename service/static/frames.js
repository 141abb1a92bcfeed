// All that changes by itself changes in common frames of the browser, some 28 a second: each frame costs
// several milliseconds of a processor that may have to act, however little is drawn in it.

const PAUSE_MS = 33;

const waiting = new Map();

// Does something in the next frame; of works with the same name only the newest. A hidden page has no
// frames: there the newest works wait until it is seen.
export function inNextFrame(name, work) {
  if (!waiting.size) setTimeout(requestAnimationFrame, PAUSE_MS, doAll);
  waiting.set(name, work);
}

function doAll() {
  const works = [...waiting.values()];
  waiting.clear();
  for (const work of works) {
    try {
      work();
    } catch (error) {
      reportError(error);
    }
  }
}
