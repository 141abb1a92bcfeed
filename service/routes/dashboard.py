"""The dashboard: `static/index.html`, completed with the names of its figures and its form.

Both are made from declarations: of the figures, and of the configuration.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import HTMLResponse

import service
from rtagent.telemetry.figures.declaration import entries
from rtagent.telemetry.figures.document import Stats
from service.routes.form import settings_form

STATIC = Path(service.__file__).parent / "static"
REVALIDATE = {"cache-control": "no-cache"}
"""A browser asks each time whether its copy is still current, so an upgrade shows at once."""
_PLACES = re.compile(
    r'(?P<before><dt></dt><dd|<dd class="sub"><b|<b|<canvas|<tr) '
    r'data-(?:figure|series|regret)="(?P<path>[\w.]+)"(?:><th scope="row">)?'
)
"""Where a figure is shown: large or small in a group, in a text, as a chart, in a table's row."""

router = APIRouter()


@router.get("/", include_in_schema=False)
async def dashboard() -> HTMLResponse:
    """The dashboard."""
    return HTMLResponse(dashboard_page(), headers=REVALIDATE)


@cache
def dashboard_page() -> str:
    """The page, as HTML."""
    names = {each.path: each.figure.names for each in entries(Stats)}

    def labelled(place: re.Match[str]) -> str:
        text, name, large = place[0], names[place["path"]][0], names[place["path"]][-1]
        small = name.rpartition(", ")[2]
        return {
            "<dt></dt><dd": text.replace("<dt>", f"<dt>{large}"),
            '<dd class="sub"><b': text.replace("<b", f"{small} <b"),
            "<b": f"{name} {text}",
            "<canvas": f'{text} data-name="{name}"',
            "<tr": f"{text}{small.capitalize()}",
        }[place["before"]]

    layout = (STATIC / "index.html").read_text(encoding="utf-8")
    return _PLACES.sub(labelled, layout).replace("{{settings}}", settings_form())
