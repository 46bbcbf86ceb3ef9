"""An application for Zope's ini file: `egg:fsyncstorage#zope`.

It is Zope's own, `egg:Zope#main`, except that what zope.conf calls a
<zeoclient> or a <clientstorage> is opened as an <fsyncclient>, with all of
its keys: for a site whose zope.conf a recipe, a template or an image writes.
This holds for all of the process, as the ini file has one site.
"""

from typing import Any

from ZEO.zconfig import ClientStorageConfig
from ZODB.config import ZEOClient

from . import sections


def make_app(global_config: dict[str, str], zope_conf: str) -> Any:
    from Zope2.Startup.run import make_wsgi_app
    for section in ZEOClient, ClientStorageConfig:
        section.open = _open
    return make_wsgi_app(global_config, zope_conf)


def _open(section: Any) -> Any:
    return sections.FsyncClient(section.config).open()
