"""`/figures`: every figure of `GET /v1/stats`, and everything else that the dashboard shows.

The sentences are those of the metrics and of OpenAPI, the names in front of them the dashboard's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from service.routes.figures import (
    ACTIONS,
    CLOCK,
    EPISODES,
    INFERENCE,
    INFERENCE_WORKER,
    LEARNER_WORKER,
    LEARNING,
    MICRO,
    MILLI,
    PREFIX,
    R3,
    REGRET_TEXT,
    REGRETS,
    REPLAY,
    Figure,
)
from service.routes.labels import ACTING, DEADLINE, IN_SHORT, LABELS, PROCESSES, STAGGERING, Shown

router = APIRouter()

UNITS = {"s": "s", "ms": "ms", "us": "µs", "hz": "Hz", "bytes": "bytes", "ticks": "ticks"}
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Figures explained · rtagent</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
<link rel="stylesheet" href="/static/figures.css">
</head>
<body class="explained">
<a class="skip" href="#main">Skip to the figures</a>
<header><h1>Figures explained</h1><nav aria-label="Pages"><a href="/">Dashboard</a></nav></header>
<p class="intro">In bold: what the dashboard calls a figure; below it, or alone where the dashboard
does not show it, its name in <a href="/v1/stats">/v1/stats</a>.</p>
<p class="intro">Percentiles and means cover the last 60 seconds, or the time since the inference
settings changed if that is less, unless the text says otherwise; counters cover the run. What is
not known is shown as unknown, never as 0.</p>
<nav class="contents" aria-label="Sections">$contents</nav>
<main id="main" tabindex="-1">
$sections
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class Section:
    """Figures that belong together.

    Attributes:
        anchor: its place on the page.
        title: its heading.
        text: what they have in common, one sentence.
        prefix: of the figures' paths.
        figures: the figures.
        shown: what the dashboard shows besides.
    """

    anchor: str
    title: str
    text: str
    prefix: str
    figures: Sequence[Figure]
    shown: Sequence[Shown] = ()


REGRET_MEANING = {
    "inaction": "What the run's default ticks (actions.default) can have cost: their number times "
    "the range of rewards, 0 among them, which the environment declares (bound) or which was "
    "observed (estimate). What a default tick brings about later is not in it.",
    "delay": "What old actions cost. Unknown: it depends on how predictable the world is. What is "
    "measured is actions.delay_ticks and actions.disagreement.",
    "learning": "What a policy costs that has not learned everything. Unknown: the theorem's bound "
    "has no constant.",
}
SECTIONS = [
    Section("short", "In short", "What the top of the dashboard says.", "", [], IN_SHORT),
    Section("timeline", "Stagger timeline", "Each lane is an inference process. Evenly spread bars "
            "are what staggering is for: then an action is ready for every tick. Below, each mark "
            "is a tick of the world.", "", [], STAGGERING),
    Section("clock", "Clock", "The world's clock, which waits for nobody.", "", CLOCK),
    Section("actions", "Acting in time", "Which action each tick got, counted from the ledger.",
            "", ACTIONS, ACTING),
    Section("inference", "Inference", "The processes that turn pictures into actions.", "",
            INFERENCE),
    Section("processes", "Processes", "Every process of the daemon.", "", [], PROCESSES),
    Section("inference-workers", "Inference processes", "The figures of each of them.",
            "inference.workers[].", INFERENCE_WORKER),
    Section("regret", "Cost of being late", REGRET_TEXT, "",
            [Figure(f"regret.{name}", REGRET_MEANING[name]) for name in REGRETS]),
    Section("learning", "Learning", "The processes that improve the policy.", "", LEARNING),
    Section("learning-workers", "Learner processes", "The figures of each of them.",
            "learning.workers[].", LEARNER_WORKER),
    Section("episodes", "Episodes", "What the agent earns.", "", EPISODES),
    Section("replay", "Replay", "What can be learned from.", "", REPLAY),
    Section("r3", "Deadline and memory", "Learning within a deadline and a memory budget (R3).",
            "", R3, DEADLINE),
]


def unit(figure: Figure) -> str:
    """The figure's unit, after its name; empty: a count, a text, or a number without unit."""
    if figure.flag:
        return "yes or no"
    if figure.metric is None:
        return ""
    if "per_second" in figure.metric:
        return "1/s"
    if figure.metric.endswith("_ratio"):
        return "ratio, 0 to 1" if "variation" not in figure.metric else "ratio"
    for part in reversed(figure.path.split(".")):
        if (suffix := part.rpartition("_")[2]) in UNITS:
            return UNITS[suffix]
    if figure.metric.endswith("_ticks"):
        return "ticks"
    return "count" if figure.kind == "counter" else ""


def _row(section: Section, figure: Figure) -> str:
    path = f"{section.prefix}{figure.path}"
    names = _names(LABELS.get(path, ()))
    return (
        f'<tr id="{escape(path)}"><th scope="row">{names}<code>{escape(path)}</code></th>'
        f"<td>{escape(figure.text)}</td><td>{unit(figure)}</td><td>{_metric(figure)}</td></tr>"
    )


def _shown_row(shown: Shown) -> str:
    return (
        f'<tr><th scope="row">{_names(shown.names)}</th><td>{escape(shown.text)}</td><td></td>'
        f"<td>from {escape(shown.source)}</td></tr>"
    )


def _names(names: Sequence[str]) -> str:
    return "".join(f"<b>{escape(name)}</b> " for name in names)


def _metric(figure: Figure) -> str:
    """Its name and labels in Prometheus, and the unit if that is another one there."""
    if figure.metric is None:
        return ""
    labels = ",".join(f'{name}="{value}"' for name, value in figure.labels.items())
    text = f"{PREFIX}{figure.metric}<wbr>{escape(f'{{{labels}}}')}" if labels else (
        f"{PREFIX}{figure.metric}"
    )
    return f"<code>{text}</code>{' (in s)' if figure.scale in (MILLI, MICRO) else ''}"


def _section(section: Section) -> str:
    rows = "\n".join([
        *(_row(section, figure) for figure in section.figures), *map(_shown_row, section.shown)
    ])
    return (
        f'<section class="panel" id="{section.anchor}"><h2>{escape(section.title)}</h2>'
        f"<p>{escape(section.text)}</p>"
        f'<table><thead><tr><th scope="col">Figure</th><th scope="col">Meaning</th>'
        f'<th scope="col">Unit</th><th scope="col">Prometheus, or source</th></tr></thead>'
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
