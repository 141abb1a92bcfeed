"""What the fork server imports once, so that a worker starts in tens of milliseconds.

It imports and runs nothing: a fork made after a torch operation hangs in the child. Importing this
module arms the death signal, so it may be imported by the fork server alone; its children find it
already imported and read the fork server's pid from it.
"""

from __future__ import annotations

import contextlib
import importlib
import os

from rtagent.launch import STARTED_BY
from rtagent.realtime import die_with_parent

FORK_SERVER_PID = os.getpid()

die_with_parent(int(os.environ.pop(STARTED_BY, os.getppid())))

for _module in (
    "torch",
    "rtagent.probe",
    "rtagent.env.process",
    "rtagent.inference.process",
    "rtagent.learning.learner",
):
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
