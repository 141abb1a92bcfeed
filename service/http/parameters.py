"""Refuses query parameters that a call does not have: a misspelled one would have no effect."""

from __future__ import annotations

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Cookie, Header, Path
from starlette.requests import HTTPConnection

from service.http.problems import Problem


async def check_parameters(connection: HTTPConnection) -> None:
    """Refuse parameters that the function of the call does not take.

    Raises:
        Problem: names each.
    """
    if not connection.scope["query_string"]:
        return
    # Not from the OpenAPI document: the first such request would make it, and hold up all others.
    fields = get_flat_params(connection.scope["route"].dependant)
    known = {
        field.alias for field in fields if not isinstance(field.field_info, Path | Header | Cookie)
    }
    unknown = sorted(set(connection.query_params) - known)
    if unknown:
        possible = f"there are {', '.join(sorted(known))}" if known else "there is none"
        raise Problem(
            422, f"{unknown[0]}: no parameter of this call; {possible}", kind="invalid-value",
            errors=[{"field": name, "in": "query", "reason": "unknown field"} for name in unknown],
        )
