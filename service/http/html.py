"""Templates of the pages that are written in Python."""

from __future__ import annotations

from string import Template


def page(title: str, style: str, kind: str, body: str) -> Template:
    """A whole page, in which each `$name` is left to be filled in.

    Args:
        title: of the window.
        style: file of its style sheet, beside that of all pages.
        kind: classes of the body.
        body: HTML.
    """
    return Template(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · rtagent</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
<link rel="stylesheet" href="/static/{style}">
</head>
<body class="{kind}">
{body}
</body>
</html>
""")


def explained_page(title: str, skip: str, intro: str, kind: str = "") -> Template:
    """A page of sections, `$sections`, with a table of contents, `$contents`.

    Args:
        title: its heading.
        skip: text of the link that leads keyboard users past the contents.
        intro: HTML of the paragraphs before the contents.
        kind: further classes of the body.
    """
    return page(title, "figures.css", f"explained {kind}".rstrip(), f"""\
<a class="skip" href="#main">{skip}</a>
<header><h1>{title}</h1><nav aria-label="Pages"><a href="/">Dashboard</a></nav></header>
{intro}
<nav class="contents" aria-label="Sections">$contents</nav>
<main id="main" tabindex="-1">
$sections
</main>""")
