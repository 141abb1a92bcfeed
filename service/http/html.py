"""What the pages that are written in Python have in common."""

from __future__ import annotations

from string import Template


def page(title: str, style: str, kind: str, body: str) -> Template:
    """A whole page, with a style sheet of its own beside that of all pages, and classes (`kind`) of
    the body; in the body's HTML, `$name` is left to be filled in.
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
        skip: where the link for those who read by keyboard goes.
        intro: paragraphs before the contents, as HTML.
        kind: further classes.
    """
    return page(title, "figures.css", f"explained {kind}".rstrip(), f"""\
<a class="skip" href="#main">{skip}</a>
<header><h1>{title}</h1><nav aria-label="Pages"><a href="/">Dashboard</a></nav></header>
{intro}
<nav class="contents" aria-label="Sections">$contents</nav>
<main id="main" tabindex="-1">
$sections
</main>""")
