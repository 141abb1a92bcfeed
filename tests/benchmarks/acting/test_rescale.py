"""What counts as having acted after the number of processes has changed."""

from __future__ import annotations

from typing import Any

from benchmarks.acting.rescale import grow


class Daemon:
    """Shows the workers as they are at each look; the last looks are all alike."""

    def __init__(self, *looks: list[tuple[int | None, int]]) -> None:
        self.looks = list(looks)
        self.looked = 0

    def workers(self) -> list[dict[str, Any]]:
        shown = self.looks[min(self.looked, len(self.looks) - 1)]
        self.looked += 1
        return [{"pid": pid, "inferences": count} for pid, count in shown]

    def patch_inference(self, **changes: int) -> None:
        assert changes == {"processes": 2}


def test_what_the_process_before_has_done_does_not_count() -> None:
    daemon: Any = Daemon(
        [(10, 500)], [(10, 501), (None, 57)], [(10, 502), (11, 57)], [(10, 503), (11, 57)],
        [(10, 504), (11, 58)],
    )
    grow(daemon, 2)
    assert daemon.looked == 5
