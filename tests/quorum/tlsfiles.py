"""Certificates for tests, made by the command openssl: an authority, one for
members and one for us, and those of another authority."""

import os
import shutil
import subprocess
import unittest

WITHOUT = 'the command openssl is not installed'


def needed(test):
    return unittest.skipIf(shutil.which('openssl') is None, WITHOUT)(test)


def make(directory):
    """None: there is no such command; then its tests are skipped."""
    return None if shutil.which('openssl') is None else TlsFiles(directory)


class TlsFiles:

    def __init__(self, directory):
        self.directory = directory
        self.ca, self._ca_key = self._authority('ca')
        self.cert, self.key = self._signed('node', self.ca, self._ca_key)
        self._server, self._server_key = self._signed(
            'server', self.ca, self._ca_key)
        #: Of the user of etcd with this name.
        self.user_cert, self.user_key = self._signed(
            'user', self.ca, self._ca_key, '/CN=node')
        self.other_ca, other_key = self._authority('other')
        self.other_cert, self.other_key = self._signed(
            'stranger', self.other_ca, other_key)

    @property
    def options(self):
        """Of etcd."""
        return ('--cert-file', self._server, '--key-file', self._server_key,
                '--trusted-ca-file', self.ca, '--client-cert-auth')

    def _run(self, *args):
        subprocess.run(['openssl', *args], check=True, capture_output=True,
                       cwd=self.directory, timeout=60)

    def _paths(self, name):
        return [os.path.join(self.directory, f'{name}.{end}')
                for end in ('pem', 'key')]

    def _authority(self, name):
        cert, key = self._paths(name)
        self._run('req', '-x509', '-newkey', 'ec', '-pkeyopt',
                  'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
                  '-subj', f'/O={name}', '-addext',
                  'keyUsage=critical,keyCertSign,cRLSign',
                  '-keyout', key, '-out', cert)
        return cert, key

    def _signed(self, name, ca, ca_key, subject=None):
        """Without a CommonName, unless the subject has one: etcd would take
        it for the name of a user."""
        cert, key = self._paths(name)
        request = os.path.join(self.directory, f'{name}.csr')
        extensions = os.path.join(self.directory, f'{name}.cnf')
        with open(extensions, 'w') as file:
            # (The last one Python asks for, from 3.13 on.)
            file.write('subjectAltName=IP:127.0.0.1\n'
                       'extendedKeyUsage=serverAuth,clientAuth\n'
                       'authorityKeyIdentifier=keyid\n')
        self._run('req', '-newkey', 'ec', '-pkeyopt',
                  'ec_paramgen_curve:P-256', '-nodes', '-subj',
                  subject or f'/O={name}', '-keyout', key, '-out', request)
        self._run('x509', '-req', '-in', request, '-CA', ca, '-CAkey', ca_key,
                  '-CAcreateserial', '-days', '2', '-extfile', extensions,
                  '-out', cert)
        return cert, key
