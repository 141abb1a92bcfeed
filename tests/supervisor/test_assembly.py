"""What a start that is refused leaves in the state directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent import load_config
from rtagent.clock import MonotonicClock
from rtagent.supervisor.supervisor import Supervisor
from tests.refused import one_line


@pytest.mark.process
def test_a_start_that_is_refused_leaves_earlier_runs_alone(tmp_path: Path) -> None:
    """It made a folder for the run that did not begin, and the oldest one went for it: a service
    that was restarted while its saved replay did not fit lost the records of all its runs."""
    earlier = tmp_path / "runs" / "0000000a"
    earlier.mkdir(parents=True)
    config = load_config(None, [
        "env.id=CartPole-v1", "run.realtime=off", "run.keep_runs=1", f"run.state_dir={tmp_path}",
        f"learning.demonstrations={tmp_path}",
    ], {})
    supervisor = Supervisor(config, MonotonicClock(), "0000000b")
    with one_line("no file there ends in"):
        supervisor.run()
    assert list(earlier.parent.iterdir()) == [earlier]
