"""The scripts of the checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SERVE = Path(__file__).parents[1] / "scripts" / "serve"
IN_FILES = {
    "section": '[policy]\nengine = "openvino"\n', "literal": "[policy]\nengine='openvino'\n",
    "dotted": 'policy.engine = "openvino"\n', "other": '[policy]\n# engine = "openvino"\n',
}


@pytest.mark.parametrize(("arguments", "found"), [
    ("--set policy.engine=openvino", True),
    ("--set=policy.engine=openvino", True),
    ("--set policy.engine=\"openvino\"", True),
    ("--set policy.engine='openvino'", True),
    ("--set|policy.engine = openvino", True),
    ("--set policy.engine=torch", False),
    ("--config section", True),
    ("--config=literal", True),
    ("--config dotted", True),
    ("--config other", False),
])
def test_serve_sees_a_setting_however_it_is_written(
    tmp_path: Path, arguments: str, found: bool
) -> None:
    """What it needs is installed then."""
    for name, text in IN_FILES.items():
        (tmp_path / name).write_text(text)
    function = SERVE.read_text().partition("\nhas() {")[2].partition("\n}\n")[0]
    words = arguments.split("|" if "|" in arguments else " ")
    shell = f"has() {{{function}\n}}\nwords=(\"$@\")\nhas policy.engine openvino"
    done = subprocess.run(["bash", "-c", shell, "bash", *words], cwd=tmp_path)
    assert (done.returncode == 0) == found
