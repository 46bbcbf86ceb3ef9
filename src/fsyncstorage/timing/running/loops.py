"""Which event loop ZEO runs on, in this process.

By default, ZEO uses uvloop if it can be imported, and asyncio otherwise.  Its
server behaves differently on the two, so a measurement names the one in use.
"""

import importlib
import importlib.util


def installed():
    """The loops that can be used; the last one is ZEO's default."""
    return [name for name in ('asyncio', 'uvloop')
            if importlib.util.find_spec(name)]


def use(name):
    """Servers and clients that are made from now on use this loop.

    ZEO chose one when these modules were imported (read in ZEO 6.2).
    """
    make = importlib.import_module(name).new_event_loop
    for module in ('compat', 'client', 'server'):
        module = importlib.import_module(f'ZEO.asyncio.{module}')
        module.new_event_loop = make
    client = importlib.import_module('ZEO.asyncio.client')
    client.uvloop_used = name == 'uvloop'
