"""`/docs`: the calls as a page, made from the OpenAPI document; it loads no foreign files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from service.http.html import explained_page
from service.http.login import by_tls

router = APIRouter()

PAGE = explained_page("HTTP calls", "Skip to the calls", """\
<p class="intro">$intro</p>
<p class="intro">The whole contract, with every schema, is
<a href="/openapi.json">/openapi.json</a>. From a shell on the daemon's machine:</p>
<pre class="intro"><code>token=$$(cat STATE_DIR/token)
curl -H "Authorization: Bearer $$token" $url/v1/status</code></pre>""", "calls")


def calls_page(document: Mapping[str, Any], url: str) -> str:
    """The page's HTML, from the OpenAPI document and the URL by which the client calls us."""
    tags = [tag for tag in document["tags"] if list(calls(document, tag["name"]))]
    return PAGE.substitute(
        intro=escape(document["info"]["description"]), url=escape(url),
        contents=" ".join(f'<a href="#{tag["name"]}">{escape(tag["name"])}</a>' for tag in tags),
        sections="\n".join(_section(document, tag) for tag in tags),
    )


def calls(document: Mapping[str, Any], tag: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Method, path and description of each call of a tag."""
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            if tag in call.get("tags", ()):
                yield method.upper(), path, call


def _section(document: Mapping[str, Any], tag: Mapping[str, str]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row"><code>{method} {escape(path)}</code></th>'
        f"<td><b>{escape(call['summary'])}.</b> {escape(call.get('description', ''))}</td>"
        f"<td>{_inputs_cell(document, call)}</td></tr>"
        for method, path, call in calls(document, tag["name"])
    )
    return (
        f'<section class="panel" id="{tag["name"]}"><h2>{escape(tag["name"].capitalize())}</h2>'
        f"<p>{escape(tag['description'])}</p><table><thead><tr>"
        '<th scope="col">Call</th><th scope="col">What it does</th><th scope="col">Takes</th>'
        f"</tr></thead><tbody>\n{rows}\n</tbody></table></section>"
    )


def inputs(document: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, str]:
    """The meaning of each parameter and of each field of the body, by name."""
    found = {each["name"]: each.get("description", "") for each in call.get("parameters", ())}
    for content in call.get("requestBody", {}).get("content", {}).values():
        for name, field in _fields(document, content["schema"]):
            found[name] = field.get("description", "")
    return found


def _inputs_cell(document: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    return "<br>".join(
        f"<code>{escape(name)}</code> {escape(text)}"
        for name, text in inputs(document, call).items()
    )


def _fields(
    document: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in (schema, *schema.get("anyOf", ())):
        name = part.get("$ref", "").rpartition("/")[2]
        resolved = document["components"]["schemas"][name] if name else part
        yield from resolved.get("properties", {}).items()


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Every call, explained."""
    # The command carries the token: it must not go to a proxy's port without TLS.
    url = request.base_url.replace(scheme="https") if by_tls(request.scope) else request.base_url
    page = calls_page(request.app.openapi(), str(url).rstrip("/"))
    return HTMLResponse(page, headers={"cache-control": "no-cache"})
