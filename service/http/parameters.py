"""Parameters that a call does not have: refused, for a misspelled one is not what was meant."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from service.http.problems import Problem


async def check_parameters(connection: HTTPConnection) -> None:
    """Refuse what the OpenAPI document does not name; a socket is documented as a GET.

    A call with a parameter in its path has none in its query.

    Raises:
        Problem: names each.
    """
    calls = connection.app.openapi()["paths"].get(connection.scope["path"], {})
    call = calls.get(connection.scope.get("method", "GET").lower(), {})
    known = {each["name"] for each in call.get("parameters", ()) if each["in"] == "query"}
    unknown = sorted(set(connection.query_params) - known)
    if unknown:
        possible = f"there are {', '.join(sorted(known))}" if known else "there is none"
        raise Problem(
            422, f"{unknown[0]}: no parameter of this call; {possible}", kind="invalid-value",
            errors=[{"field": name, "in": "query", "reason": "unknown field"} for name in unknown],
        )
