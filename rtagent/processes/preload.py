"""What the fork server imports once, so that a worker starts in tens of milliseconds.

It only imports: a fork made after a torch operation hangs in the child. What cannot be imported is
left out, and the process that needs it says why; torch raises an OSError if a library is missing.
"""

from __future__ import annotations

import contextlib
import importlib

for _module in (
    "torch",
    "rtagent.evaluation.probe",
    "rtagent.env.process",
    "rtagent.inference.process",
    "rtagent.learning.learner",
):
    with contextlib.suppress(Exception):
        importlib.import_module(_module)
