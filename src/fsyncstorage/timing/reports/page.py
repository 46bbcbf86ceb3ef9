"""A page of HTML that needs nothing besides: no network, no script.

A `Sheet` is a console: what tables print is in the page as in a terminal.  All
that comes from elsewhere is escaped.  The page is well-formed XML, too.
"""

import base64
import io
from html import escape

from rich.console import Console

_STYLE = """
body {
  margin: 0 auto; padding: 1rem; max-width: 62rem;
  font: 1rem/1.45 system-ui, sans-serif; color: #1c1c1c; background: #fff;
}
h2 { margin-top: 3rem; border-top: 2px solid #d8d8d8; padding-top: 1rem; }
p { overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .85rem; line-height: 1.35; }
figure { margin: 1.5rem 0; }
img { display: block; width: 100%; max-width: 46rem; height: auto; }
"""

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<link rel="icon" href="data:,"/>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{introduction}</p>
<ul>{links}</ul>
{body}
</body>
</html>
"""

#: What may be wider than the page scrolls by itself.
_PRINTED = '<pre tabindex="0">{code}</pre>'


class Sheet(Console):
    """A part of the page."""

    #: Characters a line: tables may be wide here.
    WIDTH = 170

    def __init__(self):
        super().__init__(
            file=io.StringIO(), width=self.WIDTH, record=True, markup=False,
            highlight=False, color_system='truecolor', force_terminal=True)
        self._parts = []

    def html(self):
        self._add('')
        return '\n'.join(self._parts)

    def heading(self, text, anchor):
        self._add(f'<h2 id="{escape(anchor)}">{escape(text)}</h2>')

    def picture(self, svg, words):
        """The bytes of an SVG file, and words for those who cannot see it."""
        data = base64.b64encode(svg).decode()
        self._add(f'<figure><img alt="{escape(words)}"'
                  f' src="data:image/svg+xml;base64,{data}"/></figure>')

    def _add(self, html):
        """After what was printed until now."""
        printed = self.export_html(code_format=_PRINTED, inline_styles=True)
        self._parts += [printed, html]


def page(title, introduction, entries, body):
    """The entries are texts by their anchors."""
    links = ''.join(
        f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>'
        for anchor, text in entries.items())
    return _PAGE.format(
        title=escape(title), style=_STYLE, introduction=escape(introduction),
        links=links, body=body)
