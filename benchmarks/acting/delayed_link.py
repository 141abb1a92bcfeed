"""An emulated network link: a TCP proxy that holds every byte back, and can be cut.

While the link is cut, nothing goes through it in either direction and nothing is refused: as with a
cable that is pulled out, neither side is told. Bytes on their way arrive once the link is back. The
kernel's handshake with the proxy takes no time; the delay is that of the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

PIECE_BYTES = 1 << 16
START_S = 60.0
GOES_FIRST = -15


def go_first(task: int) -> None:
    """Give priority to a process or thread that stands for another machine, where permitted."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, task, GOES_FIRST)


class DelayedLink:
    """A link to a local port, in a thread.

    Args:
        target: local port that it leads to.
        delay_s: of each direction.

    Attributes:
        port: where it listens.
    """

    def __init__(self, target: int, delay_s: float) -> None:
        self._target, self._delay_s = target, delay_s
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> DelayedLink:
        self._thread.start()
        opening = asyncio.run_coroutine_threadsafe(self._open(), self._loop)
        self.port = opening.result(START_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)

    def _run(self) -> None:
        go_first(threading.get_native_id())
        self._loop.run_forever()

    def cut(self) -> None:
        """Let nothing through."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        """Let everything through again."""
        self._loop.call_soon_threadsafe(self._whole.set)

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _open(self) -> int:
        self._server = server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Across a cut link nobody can connect.
            await self._whole.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except (OSError, asyncio.CancelledError):
            writer.close()
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(on_the_way, writer))
        try:
            while data := await reader.read(PIECE_BYTES):
                on_the_way.put_nowait((self._loop.time() + self._delay_s, data))
        except OSError:
            pass
        on_the_way.put_nowait((self._loop.time() + self._delay_s, b""))
        await delivering

    async def _deliver(
        self, on_the_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - self._loop.time())
            await self._whole.wait()
            if not data:
                writer.close()
                return
            writer.write(data)
