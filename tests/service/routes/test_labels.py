"""The labels of the dashboard's page and scripts are those that the page of figures explains."""

from __future__ import annotations

import inspect
import re
from html import escape

import pytest

from rtagent.telemetry import verdicts
from service.routes.dashboard import STATIC, dashboard_page
from service.routes.labels import SHOWN
from service.routes.pages import SECTIONS, figures_page

FIGURE = r'data-(?:figure|series|regret)="([\w.]+)"'
OTHER = (
    r'<h2>([^<]+)</h2>\n', r'<th scope="col"[^>]*>([^<]+)', r'<span>(\w+) <b id',
    r'<span>(\w+)</span> <span class="meter">', r'<p class="caption">([^<]+); <span id',
    r'<li class="(?:bar|tick)[^>]*>([^<]+)', r'<p id="executed"><b>([^<]+)',
    r'id="(?:paused|emulated)" [^>]*>([^<]+)',
)
"""Patterns of labels, other than those of figures, in the page's source."""
DRAWING = ("charts", "cluster", "delays", "figures", "horizon", "lanes", "main", "processes",
           "screen", "timeline")
"""The scripts that show figures. Events are sentences (`sentences.js`), settings are in `/docs`."""
CONNECTING = {"", "horizon", "of", "the newest", "schedule", "inference is padded to", "now",
              "of the time", "unknown so far"}
"""Words beside numbers, and on axes, that do not name a figure."""
COMPUTED = {
    "lanes": {"OUTLIER": "more than {} times", "OUTLIER_TICKS": "more than {} ticks"},
    "delays": {"KEPT_TICKS": "at most {},"},
}
"""Constants of the scripts, and how the explanations name them."""


def _words(text: str) -> str:
    return " ".join(text.split()).strip(" ,;:").casefold()


def script(name: str) -> str:
    return (STATIC / f"{name}.js").read_text(encoding="utf-8")


def drawn_labels(text: str) -> set[str]:
    """Words that a script shows beside a number, on a canvas, or as the label of a column."""
    before = re.findall(r"([^`'\"$}{]*)\$\{(?:shown|plural|plain)\(", text)
    last = [re.split(r"[,.:;(→]\s*", each.strip(" ,.:;("))[-1] for each in before]
    after = re.findall(r"\$\{found\.\w+\} ([\w-][\w -]*)", text)
    written = re.findall(r'fillText\("([^"]+)"', text)
    columns = re.findall(r'"(?:\w+ )?number", "([^"]+)"', text)
    return {_words(each) for each in (*last, *after, *written, *columns)}


LABELS = {
    each.path: each.figure.names
    for part in SECTIONS for each in part.figures if each.figure.names
}
NAMES = {name.casefold() for each in SHOWN for name in each.names} | {
    name.casefold() for names in LABELS.values() for name in names
}
EXPLAINED = {each.path for part in SECTIONS for each in part.figures}


def test_a_figure_stands_behind_its_name() -> None:
    page = dashboard_page()
    for label in (
        '<dt>Inaction, run</dt><dd data-figure="actions.inaction_fraction"',
        '<dd class="sub">strict <b data-figure="actions.strict_inaction_fraction"',
        '; exploration rate <b data-figure="learning.epsilon"',
        '<canvas data-series="learning.loss" data-name="Loss"',
        '<tr data-regret="regret.delay"><th scope="row">Delay</th>',
    ):
        assert label in page
    assert set(re.findall(FIGURE, page)) <= set(LABELS)


def test_every_other_label_of_the_page_has_an_entry() -> None:
    found = [re.findall(label, dashboard_page()) for label in OTHER]
    assert all(found)
    assert {_words(each) for label in found for each in label} - NAMES == set()


@pytest.mark.parametrize("name", DRAWING)
def test_every_label_of_a_script_has_an_entry(name: str) -> None:
    assert drawn_labels(script(name)) - NAMES - CONNECTING == set()
    read = re.findall(r'at\(stats, "([\w.]+)"\)', script(name))
    assert set(read) - EXPLAINED == set()


def test_every_name_is_on_the_dashboard() -> None:
    page = dashboard_page()
    on_page = {name.casefold() for path in re.findall(FIGURE, page) for name in LABELS[path]}
    on_page |= {_words(each) for label in OTHER for each in re.findall(label, page)}
    told = inspect.getsource(verdicts)
    scripts = "".join([told, *map(script, DRAWING)]).casefold()
    written = {name for name in NAMES if re.search(rf"""[`" ]{re.escape(name)}[`" :]""", scripts)}
    assert NAMES - on_page - written == set()


def test_every_name_is_explained() -> None:
    text = figures_page()
    for names in (*LABELS.values(), *(each.names for each in SHOWN)):
        for name in names:
            assert f"<b>{escape(name)}</b>" in text
    anchors = re.findall(r'href="/figures#([\w-]+)"', dashboard_page())
    assert set(anchors) <= {part.anchor for part in SECTIONS}


def test_explanations_tell_the_constants_of_the_scripts() -> None:
    texts = " ".join(each.text for each in SHOWN)
    for name, constants in COMPUTED.items():
        for constant, told in constants.items():
            found = re.search(rf"const {constant} = ([\d.]+);", script(name))
            value = float(found[1])
            number = f"{100 * value if '%' in told else value:,g}"
            assert told.format(number) in texts, constant
