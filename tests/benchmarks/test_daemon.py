"""A daemon for measurements."""

from __future__ import annotations

import sys

import pytest

from benchmarks.daemon import RunningDaemon


@pytest.mark.process
def test_it_ends_when_a_signal_comes_before_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(daemon: RunningDaemon) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunningDaemon, "_connect", interrupted)
    daemon = RunningDaemon(under=[sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(KeyboardInterrupt):
        daemon.__enter__()
    assert daemon.process.poll() is not None
    assert not daemon.state_dir.exists()
