"""A page of HTML that needs nothing besides: no network, no script.

A `Sheet` takes what the tables print, in the place of a console.  All that
comes from elsewhere is escaped.  The page is well-formed XML, too.
"""

import base64
from html import escape

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<path d="M2 14V9h3v5zm4.500 0V5h3v9zm4.500 0V2h3v12z" fill="#d55e00"/>'
    '</svg>')

_STYLE = """
:root {
  color-scheme: light dark;
  --text: #1c1c1c; --soft: #5a5a5a; --line: #d8d8d8; --page: #fff;
  --accent: #0a6069;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e6e6; --soft: #a8a8a8; --line: #444; --page: #181818;
    --accent: #6cc7d1;
  }
}
body {
  margin: 0 auto; padding: 1rem; max-width: 62rem;
  background: var(--page); color: var(--text);
  font: 1rem/1.45 system-ui, sans-serif;
}
h1, h2 { line-height: 1.2; }
h2 { margin-top: 3rem; padding-top: 1rem; border-top: 2px solid var(--line); }
a { color: var(--accent); }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.bold { font-weight: bold; margin-top: 1.5rem; }
.dim { color: var(--soft); font-size: .9rem; }
.cyan { color: var(--accent); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td {
  padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line);
}
th { font-weight: normal; white-space: nowrap; }
thead th { color: var(--soft); }
.right { text-align: right; white-space: nowrap; }
small { color: var(--soft); }
pre { font-size: .85rem; line-height: 1.35; margin: .5rem 0; }
figure { margin: 1.5rem 0; }
img {
  display: block; width: 100%; max-width: 46rem; height: auto;
  background: #fff; border-radius: 4px;
}
"""

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<link rel="icon" href="{icon}"/>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


class Sheet:
    """A part of the page; prints like a console."""

    #: Characters a line, of what is laid out in lines.
    width = 170

    def __init__(self):
        self._parts = []

    def html(self):
        return '\n'.join(self._parts)

    def print(self, *things, **ignored):
        for thing in things:
            if isinstance(thing, Table):
                self._parts.append(_boxed(_table(thing)))
            elif isinstance(thing, str) and '\n' in thing.strip():
                self._parts.append(_boxed(f'<pre>{escape(thing)}</pre>'))
            else:
                self._parts.append(_paragraph(thing))

    def heading(self, text, anchor):
        self._parts.append(f'<h2 id="{escape(anchor)}">{escape(text)}</h2>')

    def picture(self, svg, words):
        """The bytes of an SVG file, and what to say to who cannot see it."""
        self._parts.append(
            f'<figure><img alt="{escape(words)}"'
            f' src="{_data("image/svg+xml", svg)}"/></figure>')


def page(title, body):
    return _PAGE.format(
        title=escape(title), style=_STYLE, body=body,
        icon=_data('image/svg+xml', _ICON.encode()))


def contents(title, introduction, entries):
    """The head of a page; the entries are texts by their anchors."""
    links = ''.join(
        f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>'
        for anchor, text in entries.items())
    return (f'<h1>{escape(title)}</h1>\n<p>{escape(introduction)}</p>\n'
            f'<ul>{links}</ul>')


def _data(kind, content):
    return f'data:{kind};base64,{base64.b64encode(content).decode()}'


def _boxed(html):
    """What may be wider than the page scrolls by itself."""
    return f'<div class="wide" tabindex="0">{html}</div>'


def _paragraph(thing):
    kind = thing.style if isinstance(thing, Text) else ''
    return f'<p class="{kind}">{_inline(thing)}</p>'


def _table(table):
    columns = table.columns
    head = ''.join(
        f'<th scope="col" class="{column.justify}">{_inline(column.header)}'
        '</th>' for column in columns)
    rows = ''.join(
        f'<tr>{_row(columns, cells)}</tr>\n'
        for cells in zip(*(column.cells for column in columns)))
    return (f'<table>\n<thead><tr>{head}</tr></thead>\n'
            f'<tbody>\n{rows}</tbody>\n</table>')


def _row(columns, cells):
    first, *others = map(_inline, cells)
    return f'<th scope="row">{first}</th>' + ''.join(
        f'<td class="{column.justify}">{cell}</td>'
        for column, cell in zip(columns[1:], others))


def _inline(thing):
    if not isinstance(thing, Text):
        thing = Text(thing)
    return ''.join(
        _styled(segment) for segment in thing.render(Console()))


def _styled(segment):
    html = escape(segment.text).replace('\n', '<br/>')
    style = segment.style or Style()
    if style.bold:
        html = f'<b>{html}</b>'
    if style.dim:
        html = f'<small>{html}</small>'
    if style.color:
        html = f'<span class="{style.color.name}">{html}</span>'
    return html
