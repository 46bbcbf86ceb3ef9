"""A page of HTML that needs no other file, no network and no script.

Tables look as in a terminal.  All texts from documents are escaped.  The page
is well-formed XML, too.
"""

import base64
import io
from html import escape

from rich.console import Console

#: Characters in a line: there is room for wide tables.
WIDTH = 170

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>What was measured</title>
<link rel="icon" href="data:,"/>
<style>
body {{
  margin: 0 auto; padding: 1rem; max-width: 62rem;
  font: 1rem/1.45 system-ui, sans-serif; color: #1c1c1c; background: #fff;
}}
h2 {{ margin-top: 3rem; border-top: 2px solid #d8d8d8; padding-top: 1rem; }}
p {{ overflow-wrap: anywhere; }}
pre {{ overflow-x: auto; font-size: .85rem; line-height: 1.35; }}
img {{ display: block; width: 100%; max-width: 46rem; margin: 1.5rem 0; }}
</style>
</head>
<body>
<h1>What was measured</h1>
<p>Results of fsync-time. What counts are the ratios, and how they change with
the cost of a sync. A ratio with ~ may be the effect of noise alone.</p>
<ul>{links}</ul>
{sections}
</body>
</html>
"""

_LINK = '<li><a href="#{}">{}</a></li>'
_SECTION = '<h2 id="{0}">{0}</h2>\n<p>{1}</p>\n{2}\n{3}'
_PICTURE = '<img alt="{}" src="data:image/svg+xml;base64,{}"/>'
#: A table that is wider than the page scrolls sideways.
_PRINTED = '<pre tabindex="0">{code}</pre>'


def page(sections):
    """Sections are pairs: a name with a line about it, and the HTML."""
    return _PAGE.format(
        links=''.join(_LINK.format(*map(escape, names))
                      for names, _ in sections),
        sections='\n'.join(html for _, html in sections))


def section(name, words, pictures, show):
    """A section has what `show` prints to a console, and pictures: pairs of
    the bytes of an SVG file and its description."""
    console = Console(
        file=io.StringIO(), width=WIDTH, record=True, markup=False,
        highlight=False, color_system='truecolor', force_terminal=True)
    show(console)
    return _SECTION.format(
        escape(name), escape(words),
        '\n'.join(
            _PICTURE.format(escape(seen), base64.b64encode(svg).decode())
            for svg, seen in pictures),
        console.export_html(code_format=_PRINTED, inline_styles=True))
