"""The calls that are asked for most often, past the router.

FastAPI tries the routes one after the other and solves the dependencies of each request anew: that
is half of what a short answer costs. The calls here take no parameters, so a request for one is
known by its path, and there is nothing to solve. They are the functions that the router has, too:
it describes them in the OpenAPI document, and answers whatever is not asked for exactly so.
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
    """Answers GET requests for the paths of some calls without parameters itself."""

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
