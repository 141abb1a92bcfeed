"""The calls that are requested most often, answered without the router.

FastAPI tries its routes one after the other and resolves the dependencies of each request: that is
half of the time of a short answer. The calls here take no parameters, so the path alone identifies
them and there is nothing to resolve. The router has the same functions: it describes them in the
OpenAPI document and answers every other request for their paths.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.problems import EXPECTED, as_problem

Calls = Mapping[str, Callable[[], Awaitable[Response]]]


@dataclass(frozen=True)
class HotCalls:
    """Answers GET requests without a query for the paths of `calls`."""

    app: ASGIApp
    calls: Calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = None
        if scope["type"] == "http" and scope["method"] == "GET" and not scope["query_string"]:
            call = self.calls.get(scope["path"])
        if call is None:
            await self.app(scope, receive, send)
            return
        try:
            response = await call()
        except EXPECTED as error:
            response = as_problem(error).response()
        await response(scope, receive, send)
