"""What OpenVINO's int8 needs of the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.inference.engines.openvino_engine import sums_can_overflow


@pytest.mark.parametrize(("line", "expected"), [
    ("flags : avx2 avx512f", True),
    ("flags : avx2 avx_vnni", False),
    ("flags : avx2 avx512_vnni", False),
    ("Features : asimd asimddp", False),
])
def test_sums_overflow_only_on_x86_without_vnni(tmp_path: Path, line: str, expected: bool) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\n{line}\n\nprocessor : 1\n{line}\n")
    assert sums_can_overflow(info) is expected
