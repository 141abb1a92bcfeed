"""Processor time that the open dashboard costs the browser.

One daemon acts in the built-in game and does not learn. A Chromium without a window opens the page,
as people do on the machine that acts, and draws it with the processor. When the page has settled,
the time that all processes of the browser use is read from the kernel. Pages with motion and pages
of a user who prefers less of it take turns. `--before` names the `service/static` of another
version, which is measured in the same turns.

On a machine that is busy otherwise the browser leaves out frames, and the figures are too small.
Limit: the page takes less than 60 % of a core. It needs Chromium and the extra `test`.

    rtagent bench dashboard_page [--rounds N] [--seconds S] [--before FOLDER] [--json]
"""

from __future__ import annotations

import mimetypes
import os
import shutil
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command import Result, command_line, report
from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import cpu_s
from rtagent.cli.jitter import measure_jitter
from rtagent.cli.output import plain_table, stdout
from rtagent.errors import UserError
from rtagent.processes.kernel_state import descendants

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first is the same engine without windows of its own, and takes less of the processor."""
SETTLE_S = 5.0
VIEW = {"width": 1280, "height": 900}
MOST_SHARE = 0.6


def opened_browser(playwright: Any) -> Any:
    """A Chromium without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise UserError(f"dashboard_page: none of {', '.join(PROGRAMS)} is installed")
    return playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


def give(folder: Path, route: Any) -> None:
    """Answer the request for a static file from a folder."""
    file = folder / Path(route.request.url).name
    kind = mimetypes.guess_type(file.name)[0]
    route.fulfill(body=file.read_bytes(), content_type=kind)


def browser_s(others: set[int]) -> float:
    """Processor time of all descendants of this process but some."""
    return sum(cpu_s(pid) for pid in descendants(os.getpid()) - others)


def share_of_a_core(
    playwright: Any, daemon: RunningDaemon, motion: str, folder: Path | None, seconds: float
) -> float:
    """Open the page in a browser of its own, let it settle, and read what the browser uses."""
    others = descendants(os.getpid())
    browser = opened_browser(playwright)
    try:
        page = browser.new_page(viewport=VIEW, reduced_motion=motion)
        if folder is not None:
            page.route("**/static/*", partial(give, folder))
        page.goto(daemon.post("/v1/logins")["url"])
        page.wait_for_selector("#no-timeline", state="hidden")
        page.wait_for_timeout(1e3 * SETTLE_S)
        used, began = browser_s(others), time.monotonic()
        page.wait_for_timeout(1e3 * seconds)
        return (browser_s(others) - used) / (time.monotonic() - began)
    finally:
        browser.close()


def measure(rounds: int, seconds: float, before: Path | None = None) -> dict[str, Any]:
    """Shares of a core, of each round, by page and preferred motion."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise UserError("dashboard_page: needs playwright: install the extra test") from None
    pages = {"this version": None} if before is None else {"before": before, "this version": None}
    found: dict[str, dict[str, list[float]]] = {
        page: {"no-preference": [], "reduce": []} for page in pages
    }
    acting = RunningDaemon("learning.processes=0", quiet=True)
    with acting as daemon, sync_playwright() as playwright:
        for _ in range(rounds):
            for motion in ("no-preference", "reduce"):
                for page, folder in pages.items():
                    share = share_of_a_core(playwright, daemon, motion, folder, seconds)
                    found[page][motion].append(share)
    return {"rounds": rounds, "seconds": seconds, "shares": found}


def show(result: Result) -> None:
    """Print the result as a table."""
    table = plain_table("page", "motion", "core, median", "least", "most")
    for page, motions in result["shares"].items():
        for motion, shares in motions.items():
            values = (statistics.median(shares), min(shares), max(shares))
            table.add_row(page, motion, *(f"{100 * value:.0f} %" for value in values))
    stdout().print(table)
    print(f"machine's own floor, us: {result['floor']}; load: {result['load']}")
    print("ok" if result["passed"] else f"MISSED (below {100 * MOST_SHARE:.0f} %)")


def main() -> int:
    """Measure; exit code 1 if the page takes too much."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each page")
    parser.add_argument("--before", type=Path, help="static files of another version")
    args = parser.parse_args()
    if args.before is not None and not (args.before / "main.js").exists():
        raise UserError(f"--before {args.before}: has no main.js")
    machine = {"floor": measure_jitter(3.0), "load": os.getloadavg()}
    result = measure(args.rounds, args.seconds, args.before)
    median = statistics.median(result["shares"]["this version"]["no-preference"])
    return report({**machine, **result, "passed": median < MOST_SHARE}, args.json, show)


if __name__ == "__main__":
    sys.exit(main())
