"""Is an environment fit for realtime, where the world does not wait? A suite of checks for any one.

    from rtagent.testing import check_realtime

    def test_my_world():
        check_realtime("my_package.worlds:Track-v0", rate_hz=50).raise_for_failures()

From the command line: `rtagent check-env my_package.worlds:Track-v0 --rate-hz 50`.

| check | what fails |
|---|---|
| pickling | id and kwargs, or the callable, cannot be sent to another process |
| usable | rtagent cannot build it, or use its spaces, rate or noop |
| hang | a call does not come back within the time that the daemon would wait |
| errors | a call raises, or the process dies |
| step time | p99 of a step is longer than a tick, on a machine that is quiet enough to say so |
| reset time | nothing; a reset longer than a tick is a warning, with what it costs |
| spaces | an observation is not in its space; one that is only out of bounds is a warning |
| rewards | a reward is not a number that is finite in float32 |
| episode ends | `terminated` or `truncated` is not a truth value |
| determinism | the same seed and actions give another episode, in a fresh environment, too |
| noop | the default behaviour is faulty; an undeclared one is a warning |
| close | `close()` leaves more processes, threads or descriptors behind each time |
"""

from __future__ import annotations

from rtagent.testing.conformance import check_realtime
from rtagent.testing.report import Check, NotRealtime, Report

__all__ = ["Check", "NotRealtime", "Report", "check_realtime"]
