"""`/figures`: every figure of `GET /v1/stats`, and everything else that the dashboard shows.

The sentences are those of the metrics and of OpenAPI; the names are those of the dashboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from rtagent.telemetry.figures.acting import Actions, Clock, Inference, InferenceWorker, Regrets
from rtagent.telemetry.figures.cluster import Cluster, Node
from rtagent.telemetry.figures.declaration import Entry, Figure, entries, text_of
from rtagent.telemetry.figures.learning import R3, Episodes, LearnerWorker, Learning, Replay
from service.http.html import explained_page
from service.routes.labels import ACTING, DEADLINE, IN_SHORT, PROCESSES, STAGGERING, Shown
from service.routes.metrics import series_name

router = APIRouter()

PAGE = explained_page("Figures explained", "Skip to the figures", """\
<p class="intro">A figure's name on the dashboard is in bold. Below it, or alone if the dashboard
does not show the figure, is its name in <a href="/v1/stats">/v1/stats</a>.</p>
<p class="intro">Percentiles and means cover the last 60 seconds, or the time since the inference
settings changed if that is less, unless the text says otherwise; counters cover the run. What is
not known is shown as unknown, never as 0.</p>""")


@dataclass(frozen=True)
class Section:
    """A section of the page: figures, and what else the dashboard shows with them."""

    anchor: str
    title: str
    text: str
    figures: Sequence[Entry] = ()
    shown: Sequence[Shown] = ()


def _of(
    section: type[Any], title: str, path: str, shown: Sequence[Shown] = (), anchor: str = ""
) -> Section:
    return Section(anchor or path, title, text_of(section), entries(section, f"{path}."), shown)


SECTIONS = [
    Section("short", "In short", "The verdicts at the top of the dashboard.", shown=IN_SHORT),
    Section("timeline", "Stagger timeline", "Each lane is an inference process. Evenly spread bars "
            "are what staggering is for: then an action is ready for every tick. Below, each mark "
            "is a tick of the world.", shown=STAGGERING),
    _of(Clock, "Clock", "clock"),
    _of(Actions, "Acting in time", "actions", ACTING),
    _of(Inference, "Inference", "inference"),
    Section("processes", "Processes", "Every process of the daemon.", shown=PROCESSES),
    _of(InferenceWorker, "Inference processes", "inference.workers[]", anchor="inference-workers"),
    _of(Regrets, "Cost of being late", "regret"),
    _of(Learning, "Learning", "learning"),
    _of(LearnerWorker, "Learner processes", "learning.workers[]", anchor="learning-workers"),
    _of(Cluster, "Cluster", "cluster"),
    _of(Node, "Buffer nodes", "cluster.nodes[]", anchor="cluster-nodes"),
    _of(Episodes, "Episodes", "episodes"),
    _of(Replay, "Replay", "replay"),
    _of(R3, "Deadline and memory", "r3", DEADLINE),
]


def meaning(figure: Figure) -> str:
    """What a figure means, and when it is unknown."""
    return f"{figure.meaning} Unknown: {figure.none}." if figure.none else figure.meaning


def kind_and_unit(entry: Entry) -> str:
    """The kind of a figure and, unless it is a text or a number without unit, its unit."""
    unit = "count" if entry.figure.kind == "counter" else ""
    unit = "yes or no" if entry.flag else entry.figure.unit or unit
    return f"{entry.figure.kind}, {unit}" if unit else entry.figure.kind


def _row(entry: Entry) -> str:
    path, figure = escape(entry.path), entry.figure
    return (
        f'<tr id="{path}"><th scope="row">{_names(figure.names)}<code>{path}</code></th>'
        f"<td>{escape(meaning(figure))}</td><td>{kind_and_unit(entry)}</td>"
        f"<td>{_metric(figure)}</td></tr>"
    )


def _shown_row(shown: Shown) -> str:
    return (
        f'<tr><th scope="row">{_names(shown.names)}</th><td>{escape(shown.text)}</td>'
        f"<td></td><td>from {escape(shown.source)}</td></tr>"
    )


def _names(names: Sequence[str]) -> str:
    return "".join(f"<b>{escape(name)}</b> " for name in names)


def _metric(figure: Figure) -> str:
    """Name and labels in Prometheus, and the unit there if it is another one."""
    if figure.metric is None:
        return ""
    name = escape(series_name(figure)).replace("{", "<wbr>{")
    return f"<code>{name}</code>{' (in s)' if figure.scale != 1.0 else ''}"


def _section(section: Section) -> str:
    rows = "\n".join([*map(_row, section.figures), *map(_shown_row, section.shown)])
    return (
        f'<section class="panel" id="{section.anchor}"><h2>{escape(section.title)}</h2>'
        f"<p>{escape(section.text)}</p>"
        f'<table><thead><tr><th scope="col">Figure</th><th scope="col">Meaning</th>'
        f'<th scope="col">Kind, unit</th><th scope="col">Prometheus, or source</th></tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></section>"
    )


def figures_page() -> str:
    """The page, as HTML."""
    links = [f'<a href="#{each.anchor}">{escape(each.title)}</a>' for each in SECTIONS]
    return PAGE.substitute(contents=" ".join(links), sections="\n".join(map(_section, SECTIONS)))


@router.get("/figures", include_in_schema=False)
async def figures() -> HTMLResponse:
    """Every figure, explained."""
    return HTMLResponse(figures_page(), headers={"cache-control": "no-cache"})
