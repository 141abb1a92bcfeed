"""Hooks of mkdocs: add the reference, and make links to files of the repository work.

A page links to files of the repository by their paths, as GitHub shows them. In the built pages
such a link leads to the page that is made of the file, or else to a copy of the file below
`source/`. A link to a missing file stops the build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

import reference
from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md", "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
}
"""Pages from outside docs/, and their places in the built pages."""
GROWING = {"How to": "how-to", "Explanations": "explanations"}
"""Sections of the navigation that get every other page of their folder, too."""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?\)", re.S)
log = logging.getLogger("mkdocs.rtagent")


def on_config(config: Any) -> Any:
    """Add the other pages of the growing sections to the navigation."""
    for section in config.nav:
        for title, pages in section.items():
            if folder := GROWING.get(title):
                found = sorted(Path(config.docs_dir, folder).glob("*.md"))
                names = [f"{folder}/{each.name}" for each in found]
                pages += [name for name in names if name not in pages]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the reference, the pages from outside, and the files that pages link to."""
    for name, content in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    for path, name in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    for page in [each for each in files if each.src_uri.endswith(".md")]:
        for target in _linked(page):
            uri, here = _uri(target), (ROOT / target).is_file()
            if here and uri.startswith("source/") and uri not in files.src_uris:
                copy = File.generated(config, uri, abs_src_path=str(ROOT / target))
                copy.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace paths of the repository in links by places in the built pages."""
    own = page.file.src_uri

    def replaced(match: re.Match[str]) -> str:
        target = _target(own, match[2])
        if target is None:
            return match[0]
        uri = _uri(target)
        if (ROOT / target).is_dir():
            log.warning("%s links to a folder, %s: name a file of it", own, target)
        here = posixpath.relpath(uri, posixpath.dirname(own) or ".")
        return f"{match[1]}{here}{match[3] or ''})"

    return LINK.sub(replaced, markdown)


def _linked(page: Any) -> list[str]:
    found = (_target(page.src_uri, match[2]) for match in LINK.finditer(page.content_string))
    return [each for each in found if each is not None]


def _target(page: str, link: str) -> str | None:
    """The path in the repository of the file that a link means; None: the link leads outside."""
    if re.match(r"[a-z]+:|/", link):
        return None
    outside = {name: path for path, name in PAGES.items()}
    origin = outside.get(page) or (
        page.removeprefix("source/") if page.startswith("source/") else f"docs/{page}"
    )
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _uri(target: str) -> str:
    """The place of a file of the repository in the built pages."""
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target}"
