"""What the dashboard's page and scripts call what they show, against the page that explains it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import service
from rtagent.telemetry import verdicts
from service.routes.labels import SHOWN
from service.routes.pages import SECTIONS, figures_page

STATIC = Path(service.__file__).parent / "static"
WITHOUT_END = {"meta", "link", "input", "br"}
DRAWING = ("charts", "delays", "figures", "horizon", "lanes", "main", "processes", "screen",
           "timeline")
"""The scripts that show figures. Events are sentences (`sentences.js`), settings are in `/docs`."""
CONNECTING = {"", "horizon", "of", "the newest", "of the time", "inference is padded to", "now",
              "unknown so far"}
"""Words beside numbers, and on axes, that name no figure."""
COMPUTED = {
    "lanes": {"OUTLIER": "more than {} times", "OUTLIER_TICKS": "more than {} ticks"},
    "delays": {"KEPT_TICKS": "at most {},"},
}
"""Constants of the scripts, and how the explanations tell them."""


@dataclass
class Element:
    """An element of the page."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def all(self, tag: str = "", name: str = "", **wanted: str) -> Iterator[Element]:
        """Its descendants of that tag, that have the attribute, and all of these classes."""
        for child in self.children:
            if isinstance(child, Element):
                classes = (child.attributes.get("class") or "").split()
                if tag in ("", child.tag) and (not name or name in child.attributes) and (
                    wanted.get("of_class", "") in ("", *classes)
                ):
                    yield child
                yield from child.all(tag, name, **wanted)

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def before(self, child: Element) -> str:
        """The words between this child and the element before it."""
        place = next(i for i, each in enumerate(self.children) if each is child)
        words = self.children[place - 1] if place else ""
        return _words(words) if isinstance(words, str) else ""


class Page(HTMLParser):
    """The tree of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("")
        self._open = [self.root]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].children.append(element)
        if tag not in WITHOUT_END:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def _words(text: str) -> str:
    return " ".join(text.split()).strip(" ,;:").casefold()


def _groups(page: Element) -> Iterator[tuple[str, Element]]:
    """What contains figures: the large label of its group, without what follows a comma."""
    for figures in page.all("dl"):
        for group in figures.all("div"):
            yield _words(next(group.all("dt")).text), group


def labelled_figures(page: Element) -> set[tuple[str, str]]:
    """Label and path of every figure in the page's source."""
    found = set()
    for label, group in _groups(page):
        stem = label.partition(",")[0]
        for place in group.all("dd"):
            if "data-figure" in place.attributes:
                found.add((label, place.attributes["data-figure"] or ""))
            for value in place.all("b", "data-figure"):
                found.add((f"{stem}, {place.before(value)}", value.attributes["data-figure"] or ""))
    grouped = {id(each) for _, group in _groups(page) for each in group.all(name="data-figure")}
    for parent in (page, *page.all()):
        for value in parent.children:
            if isinstance(value, Element) and "data-figure" in value.attributes and (
                id(value) not in grouped
            ):
                found.add((parent.before(value), value.attributes["data-figure"] or ""))
    for chart in page.all("canvas", "data-series"):
        found.add((_words(chart.attributes["data-name"] or ""), chart.attributes["data-series"]
                   or ""))
    for table in page.all("table", of_class="regrets"):
        stem = _words(next(table.all("caption")).text).partition(",")[0]
        for row in table.all("tr"):
            name = _words(next(row.all("th")).text)
            found.add((f"{stem}, {name}", f"regret.{row.attributes['data-regret']}"))
    return found


def other_labels(page: Element) -> set[str]:
    """The labels of what has no path in the page's source."""
    found = {label for label, _ in _groups(page)}
    found |= {_words(share.text) for place in page.all("p", of_class="share")
              for share in list(place.all("span"))[:1]}
    found |= {_words(each.text) for legend in page.all("ul") for each in legend.all("li")
              if not list(each.all("b")) and each.attributes.get("class") != "of"}
    found |= {_words(each.text) for card in page.all("div", of_class="verdict")
              for each in card.all("h2")}
    found |= {_words(each.text) for each in page.all("th") if each.attributes["scope"] == "col"}
    found |= {_words(str(each.children[0])) for run in page.all("p", of_class="run")
              for each in run.all("span")}
    found |= {_words(str(each.children[0]).partition(";")[0])
              for each in page.all("p", of_class="caption") if list(each.all("span", "id"))
              and not list(each.all("b"))}
    found |= {_words(each.text) for place in page.all("p") for each in place.all("b")
              if place.attributes.get("id") == "executed"}
    found |= {_words(each.text) for each in page.all("span", "id", of_class="tag")}
    return found


def script(name: str) -> str:
    return (STATIC / f"{name}.js").read_text(encoding="utf-8")


def drawn_labels(text: str) -> set[str]:
    """Words that a script puts beside a number, writes on a canvas, or has as a column's label."""
    before = re.findall(r"([^`'\"$}{]*)\$\{(?:shown|plural|plain)\(", text)
    last = [re.split(r"[,.:;(→]\s*", each.strip(" ,.:;("))[-1] for each in before]
    after = re.findall(r"\$\{found\.\w+\} ([\w-][\w -]*)", text)
    written = re.findall(r'fillText\("([^"]+)"', text)
    columns = re.findall(r'\["\w+", "number", "([^"]+)"\]', text)
    return {_words(each) for each in (*last, *after, *written, *columns)}


@pytest.fixture(scope="module")
def page() -> Element:
    return Page((STATIC / "index.html").read_text(encoding="utf-8")).root


LABELS = {
    each.path: each.figure.names
    for part in SECTIONS for each in part.figures if each.figure.names
}
NAMES = {name.casefold() for each in SHOWN for name in each.names} | {
    name.casefold() for names in LABELS.values() for name in names
}
EXPLAINED = {each.path for part in SECTIONS for each in part.figures}


def test_every_label_of_the_page_has_an_entry(page: Element) -> None:
    figures = labelled_figures(page)
    shown = {each.attributes["data-figure"] for each in page.all(name="data-figure")}
    assert shown == {path for _, path in figures if not path.startswith("regret.")}
    named = {path: {each.casefold() for each in names} for path, names in LABELS.items()}
    assert [(label, path) for label, path in sorted(figures)
            if label not in named.get(path, ())] == []
    assert other_labels(page) - NAMES == set()


@pytest.mark.parametrize("name", DRAWING)
def test_every_label_of_a_script_has_an_entry(name: str) -> None:
    assert drawn_labels(script(name)) - NAMES - CONNECTING == set()
    read = re.findall(r'at\(stats, "([\w.]+)"\)', script(name))
    assert set(read) - EXPLAINED == set()


def test_every_name_is_on_the_dashboard(page: Element) -> None:
    on_page = {label for label, _ in labelled_figures(page)} | other_labels(page)
    told = inspect.getsource(verdicts)
    scripts = "".join([told, *map(script, DRAWING)]).casefold()
    written = {name for name in NAMES if re.search(rf"""[`" ]{re.escape(name)}[`" :]""", scripts)}
    assert NAMES - on_page - written == set()


def test_every_name_is_explained() -> None:
    text = figures_page()
    for names in (*LABELS.values(), *(each.names for each in SHOWN)):
        for name in names:
            assert f"<b>{escape(name)}</b>" in text
    anchors = re.findall(r'href="/figures#([\w-]+)"', (STATIC / "index.html").read_text())
    assert set(anchors) <= {part.anchor for part in SECTIONS}


def test_explanations_tell_the_constants_of_the_scripts() -> None:
    texts = " ".join(each.text for each in SHOWN)
    for name, constants in COMPUTED.items():
        for constant, told in constants.items():
            found = re.search(rf"const {constant} = ([\d.]+);", script(name))
            assert found is not None
            value = float(found[1])
            number = f"{100 * value if '%' in told else value:,g}"
            assert told.format(number) in texts, constant
