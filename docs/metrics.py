"""The directive `metrics`: all metrics of a storage or of a client, each with
the sentence that a scrape shows, too."""

from sphinx.util.docutils import SphinxDirective

from fsyncstorage.metrics.clients import ClientCollector
from fsyncstorage.metrics.collector import Collector

_ALL = {'storage': lambda: Collector(list, list).describe(),
        'client': lambda: ClientCollector({}).describe()}


class Metrics(SphinxDirective):

    required_arguments = 1

    def run(self):
        rows = [
            f'   * - ``{shown(family)}``\n     - {family.documentation}'
            for family in _ALL[self.arguments[0]]()]
        return self.parse_text_to_nodes('\n'.join(
            ['.. list-table::', '   :widths: auto', '', *rows]))


def shown(family):
    """Without the prefix; the library adds `_total` to a counter's name."""
    name = family.name.partition('_')[2]
    return f'{name}_total' if family.type == 'counter' else name


def setup(app):
    app.add_directive('metrics', Metrics)
    return {'parallel_read_safe': True}
