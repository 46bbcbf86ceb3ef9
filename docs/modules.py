"""The directive `modules`: all packages below a directory, each with its
modules, and with what the first sentences of their docstrings say of them."""

import ast
import pathlib

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).parent.parent


class Modules(SphinxDirective):

    required_arguments = 1

    def run(self):
        top = ROOT / self.arguments[0]
        packages = sorted({path.parent for path in top.rglob('*.py')})
        return [self._package(each, top) for each in packages]

    def _package(self, package, top):
        name = '.'.join(package.relative_to(top.parent).parts)
        section = nodes.section(ids=[nodes.make_id(name)])
        section += nodes.title('', '', nodes.literal(text=name))
        paths = sorted(package.glob('*.py'))
        modules = nodes.bullet_list()
        for path in paths:
            self.env.note_dependency(str(path))
            if path.name == '__init__.py':
                if text := said(path):
                    section += nodes.paragraph(text=text)
            else:
                modules += nodes.list_item('', nodes.paragraph(
                    '', '', nodes.literal(text=path.stem),
                    nodes.Text(f'  {said(path)}')))
        if modules.children:
            section += modules
        return section


def said(path):
    text = ast.get_docstring(ast.parse(path.read_text())) or ''
    return ' '.join(text.split('\n\n')[0].split()).replace('`', '')


def setup(app):
    app.add_directive('modules', Modules)
    return {'parallel_read_safe': True}
