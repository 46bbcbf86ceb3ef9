"""A program: nginx, with the driver as its watchman.

It sends the files of a directory: to everybody below `/plain/`, and to whom
an application behind it says so by `X-Accel-Redirect`.  It has a port of its
own, and all that it writes is in a directory of its own.

It speaks with the driver as `served` says.  It ends when nobody can speak to
it any more, or the driver is gone.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

from .. import foreign
from .blobs import LOCATION
from .program import BACKLOG

PLAIN = '/plain/'

_HOST = '127.0.0.1'

_CONFIGURATION = """\
daemon off;
pid {home}/pid;
error_log stderr notice;
worker_processes auto;
worker_rlimit_nofile 8192;
{user}
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {home}/client_body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{
        listen {host}:{port} backlog={backlog};
        location {plain} {{
            alias {files}/;
        }}
        {application}
    }}
}}
"""

#: As in examples/nginx, as far as it costs anything.
_APPLICATION = """\
        location / {{
            proxy_pass http://{address};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
        location {location} {{
            internal;
            alias {files}/;
            etag off;
            if_modified_since off;
            add_header ETag $upstream_http_etag;
            add_header Last-Modified $upstream_http_last_modified;
        }}
"""

#: It listens by then.
_READY = 'start worker processes'


def missing():
    """What is not installed, or None."""
    return None if _found() else 'nginx is not installed'


def version():
    """Of nginx, or None if there is none."""
    if missing():
        return None
    said = subprocess.run(
        [_found(), '-v'], capture_output=True, text=True).stderr
    # nginx version: nginx/1.22.1
    return said.strip().rpartition('/')[2]


def _found():
    # Debian has it in a directory that is in root's PATH alone.
    return shutil.which('nginx') or shutil.which('nginx', path='/usr/sbin')


def main(options):
    """With the options of `served.running`; returns when nginx ends."""
    home = options['directory']
    port = foreign.free_port(_HOST)
    path = os.path.join(home, 'nginx.conf')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(configuration(
            home, port, options['files'], options['application']))
    return foreign.serve(
        [_found(), '-p', home, '-c', path, '-e', 'stderr'], options['bond'],
        [_HOST, port], ready=_READY, chatter='[notice]',
        end=signal.SIGTERM)  # at once, whatever is being sent


def configuration(home, port, files, application):
    """With the address of an application, or without any."""
    return _CONFIGURATION.format(
        home=home, host=_HOST, port=port, backlog=BACKLOG, plain=PLAIN,
        files=files,
        # Its workers have to read what belongs to this user alone.
        user='user root;' if os.geteuid() == 0 else '',
        application=_APPLICATION.format(
            address='{}:{}'.format(*application), location=LOCATION,
            files=files) if application else '')


if __name__ == '__main__':
    sys.exit(main(json.loads(sys.argv[1])))
