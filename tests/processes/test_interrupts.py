"""The standard streams of a program that was started without some of them."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.process
@pytest.mark.parametrize("closed", [(0,), (2,), (1, 2), (0, 1, 2)])
def test_no_file_takes_the_place_of_a_closed_stream(closed: tuple[int, ...]) -> None:
    program = (
        "import os\n"
        "from rtagent.processes.interrupts import hold_standard_streams\n"
        "hold_standard_streams()\n"
        f"assert all(os.path.samefile('/dev/null', f'/proc/self/fd/{{n}}') for n in {closed})\n"
        f"assert all(os.get_inheritable(n) for n in {closed})\n"
        "assert os.open('/dev/zero', os.O_RDONLY) > 2\n"
    )
    redirections = " ".join(f"{number}>&-" for number in closed)
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirections}', sys.executable, program],
        timeout=300, check=False, capture_output=True,
    )
    assert done.returncode == 0, done.stderr
