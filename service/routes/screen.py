"""`/v1/screen.png` and `/v1/screen`: what the agent sees, on request or pushed.

Why it is correct. Each socket has three tasks: one sends pictures, one waits for the client to
disconnect, one for the service to stop; the first to end ends the others. The next picture is
fetched when the transport has accepted the one before, and it accepts no more than its high-water
mark: a client that stops reading delays itself alone, and the kernel drops it (`http/binding.py`).
All sockets send the same encoded picture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, WebSocket
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from service.http.problems import Problem
from service.routes.context import Admitted, AppContext, Context
from service.routes.openapi import content, problems

router = APIRouter()

GOING_AWAY = 1001
Rate = Annotated[
    int, Query(ge=1, le=30, description="Most pictures per second, 1 to 30.", examples=[10])
]


@router.get(
    "/screen.png", summary="What the agent sees", response_class=Response,
    responses=problems(404) | content("image/png", "The picture.", {
        "type": "string", "contentMediaType": "image/png", "description": "A PNG file.",
    }),
)
async def screen(context: AppContext) -> Response:
    """The newest frame, enlarged by a whole factor; where observations are vectors, a plot of the
    last five seconds.
    """
    picture = await context.screen_png.get()
    if picture is None:
        raise Problem(404, "there is no frame yet", kind="no-frame")
    return Response(picture, media_type="image/png", headers={"cache-control": "no-store"})


@router.get(
    "/screen", summary="What the agent sees, pushed", status_code=426, response_class=Response,
    responses=problems(426),
)
async def screen_needs_a_socket(context: AppContext, hz: Rate = 10) -> Response:
    """A WebSocket: each binary message is a PNG, sent when there is a new picture.

    At most `hz` per second, and never more than one under way to a client. What the client sends
    is ignored. Without an upgrade to a WebSocket the call answers 426.
    """
    raise Problem(
        426, "this is a WebSocket: ask for an upgrade, or for /v1/screen.png",
        headers={"upgrade": "websocket", "connection": "Upgrade"},
    )


@router.websocket("/screen")
async def pushed_screen(
    websocket: WebSocket, context: AppContext, admitted: Admitted, hz: Rate = 10
) -> None:
    """Send pictures until the client disconnects, its session ends or the service stops."""
    with context.places.take():
        await websocket.accept()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(_send(websocket, context, admitted, 1.0 / hz)),
            asyncio.create_task(_wait_for_leave(websocket)),
            asyncio.create_task(context.stopping.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        with suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(GOING_AWAY)


async def _send(
    websocket: WebSocket, context: Context, admitted: Callable[[], bool], interval: float
) -> None:
    shown: bytes | None = None
    with suppress(WebSocketDisconnect):
        while admitted():
            picture = await context.screen_png.get()
            if picture is not None and picture != shown:
                await websocket.send_bytes(picture)
                shown = picture
            await asyncio.sleep(interval)


async def _wait_for_leave(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
