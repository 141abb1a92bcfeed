"""`/v1/logins` makes addresses that open the dashboard once; `/v1/sessions` ends all sessions."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from service.http.answers import json_answer
from service.http.problems import Problem
from service.http.sessions import CODE_S
from service.routes.context import AppContext
from service.routes.openapi import described, problems

router = APIRouter()


class LoginAddress(BaseModel):
    """An address that opens the dashboard once."""

    url: str = described(
        "What a browser opens. At another name of the daemon, such as a proxy's, what follows the "
        "host stays the same.", "http://127.0.0.1:8008/?code=vYp3GmMNsnAU3x5r2mQ9yqM1cVtXo0Jb")
    expires_in_s: float = described("Seconds for which it opens.", 600.0)


class EndedSessions(BaseModel):
    """Sessions that have been ended."""

    ended: int = described("How many there were.", 2, ge=0)


@router.post(
    "/logins", status_code=201, response_model=LoginAddress,
    summary="Make an address that opens the dashboard once", responses=problems(413),
)
async def make_login(context: AppContext, request: Request) -> Response:
    """Needs the token: a session cannot make further sessions."""
    if request.state.by_session:
        raise Problem(403, "it takes the token to make an address", kind="token-needed")
    return json_answer({"url": await context.login.new_address(), "expires_in_s": CODE_S}, 201)


@router.delete(
    "/sessions", response_model=EndedSessions, summary="End all sessions", responses=problems(413)
)
async def end_sessions(context: AppContext) -> Response:
    """Every browser has to log in again, and unused addresses are void."""
    return json_answer({"ended": await context.login.end_all()})
