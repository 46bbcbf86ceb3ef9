"""Which log, and which file: from a zeo.conf, or from options.

A zeo.conf is read as fsync-runzeo reads it.  It must have one `<fsyncstorage>`
with a `<quorum>`, as a server cannot have two.  Options name only a log, for a
machine that has no zeo.conf.
"""

import argparse
import os
import typing

import ZConfig
import ZEO

from ..check.terminal import CannotRun
from ..quorum.etcd import section
from ..quorum.etcd.section import Section

#: Options in place of a zeo.conf, with the names of the keys of <quorum>.
OF_A_LOG = 'log', 'etcd', 'ca', 'cert', 'key', 'user', 'password_file'


class Configured(typing.NamedTuple):
    quorum: Section
    #: The data file of this node, and its blob directory; None: not known.
    path: str | None = None
    blob_dir: str | None = None


def configured(options: argparse.Namespace) -> Configured:
    if options.configuration is not None:
        return _of_file(options.configuration)
    return Configured(_of_options(options))


def _of_file(path: str) -> Configured:
    try:
        config, _ = ZConfig.loadConfig(ZConfig.loadSchema(os.path.join(
            os.path.dirname(ZEO.__file__), 'schema.xml')), path)
    except (ZConfig.ConfigurationError, UnicodeError) as error:
        # (Some of these messages end with a newline.)
        raise CannotRun(
            f'{path} cannot be read as a zeo.conf: {str(error).strip()}'
        ) from None
    found = [each.config for each in config.storages
             if getattr(each.config, 'quorum', None) is not None]
    if len(found) != 1:
        raise CannotRun(
            f'{path} has {len(found) or "no"} sections <fsyncstorage> with a'
            ' <quorum> in it, and one is needed')
    storage, = found
    return Configured(storage.quorum, storage.path, storage.blob_dir)


def _of_options(options: argparse.Namespace) -> Section:
    """The options have the names of the keys, and the same checks."""
    if options.log is None or options.etcd is None:
        raise CannotRun(
            'which log? Give -C and a zeo.conf, or both --log and --etcd')
    try:
        return Section(argparse.Namespace(
            **{name: getattr(options, name) for name in OF_A_LOG} | {
                'log': section.log(options.log),
                'etcd': section.etcd(' '.join(options.etcd)),
                # Settings of a node, which this is not.
                'node': 'command', 'lease': 5.0}))
    except ValueError as error:
        raise CannotRun(str(error)) from None
