"""The application: the calls, the dashboard, and the middleware in front of them."""

from __future__ import annotations

from functools import partial
from typing import Literal

from anyio import to_thread
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from rtagent import __version__
from rtagent.clock import MonotonicClock
from service.daemon.backend import Backend
from service.http import problems
from service.http.answers import json_answer
from service.http.attempts import Attempts
from service.http.head import HeadRequests
from service.http.hot import Calls, HotCalls
from service.http.login import NO_STORE, Login
from service.http.problems import Problem, ProblemMiddleware
from service.http.rate_limited_log import RateLimitedLog
from service.http.security import SecurityHeaders, SecurityMiddleware
from service.http.sessions import Sessions
from service.http.settings import Settings
from service.routes import api, dashboard, docs, openapi, pages
from service.routes.context import AppContext, Context
from service.routes.dashboard import REVALIDATE, STATIC
from service.routes.metrics import CONTENT_TYPE, prometheus_text
from service.routes.openapi import PROBLEM_RESPONSE, content, described

router = APIRouter(responses=PROBLEM_RESPONSE)


class Health(BaseModel):
    """Health of the service."""

    status: Literal["alive", "ready"] = described(
        "alive: the service answers; ready: the agent acts.", "ready")


class Assets(StaticFiles):
    """The dashboard's files, always whole: Starlette refuses a bad `Range` with plain text."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [each for each in scope["headers"] if each[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update({**REVALIDATE, "accept-ranges": "none"})
        return response


def create_app(backend: Backend, settings: Settings) -> FastAPI:
    """The HTTP application; `app.state.context.stopping.set()` ends its open streams."""
    app = FastAPI(
        title="rtagent",
        version=__version__,
        description="Control and figures of a realtime reinforcement-learning daemon. Every error "
        "is an RFC 9457 problem; every call but /livez and /readyz needs the token, or the cookie "
        "of a session. /docs shows this document as a page.",
        docs_url=None, redoc_url=None, redirect_slashes=False,
    )
    clock = MonotonicClock()
    failures = RateLimitedLog(lambda line: backend.report_event("login_failed", error=line), clock)
    attempts = Attempts(clock, failures)
    login = Login(settings, Sessions(settings.token, settings.sessions_file), attempts)
    app.state.context = Context(backend, login)
    for each in (api.router, router, dashboard.router, pages.router, docs.router):
        app.include_router(each)
    problems.install(app)
    app.mount("/static", Assets(directory=STATIC), name="static")
    openapi.install(app)
    # The middleware that is added last is the outermost.
    app.add_middleware(HotCalls, calls=hot_calls(app.state.context))
    app.add_middleware(HeadRequests)
    app.add_middleware(SecurityMiddleware, settings=settings, login=login)
    app.add_middleware(ProblemMiddleware)
    app.add_middleware(SecurityHeaders)
    return app


def hot_calls(context: Context) -> Calls:
    """The calls that programs and probes request most often, by path."""
    return {
        "/livez": livez,
        "/readyz": partial(readyz, context),
        "/v1/status": partial(api.status, context),
        "/v1/stats": partial(api.stats, context),
    }


@router.get("/livez", response_model=Health, summary="Whether the service runs", tags=["health"])
async def livez() -> Response:
    """Answers as long as the service can answer at all. Needs no token."""
    return json_answer({"status": "alive"})


@router.get(
    "/readyz", response_model=Health, summary="Whether the agent acts", tags=["health"],
    responses=openapi.problems(503),
)
async def readyz(context: AppContext) -> Response:
    """200 from the first tick on. 503, with the reason, before it, when a role has failed, and when
    no policy server answers.
    """
    ready, reason = await to_thread.run_sync(context.backend.ready)
    if not ready:
        raise Problem(503, reason, kind="not-ready")
    return json_answer({"status": "ready"})


@router.get(
    "/metrics", summary="The figures for Prometheus", tags=["figures"], response_class=Response,
    responses=content("text/plain", "One line per figure.",
                      {"type": "string", "description": "Prometheus' text format 0.0.4."}),
)
async def metrics(context: AppContext) -> Response:
    """The figures in Prometheus' text format, in base units. Unknown figures are left out."""
    text = await to_thread.run_sync(
        lambda: prometheus_text(context.backend.stats(), context.backend.status())
    )
    return Response(text, headers={"content-type": CONTENT_TYPE, **NO_STORE})
