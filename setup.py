from pathlib import Path

from setuptools import find_packages
from setuptools import setup


def read(name):
    return Path(__file__).with_name(name).read_text(encoding='utf-8')


setup(
    name='fsyncstorage',
    version='0.1.0.dev0',
    description='A ZODB FileStorage whose fsync durability can be chosen',
    long_description=read('README.rst') + '\n\n' + read('CHANGES.rst'),
    long_description_content_type='text/x-rst',
    author='The fsyncstorage contributors',
    license='ZPL-2.1',
    license_files=['LICENSE.txt'],
    keywords='ZODB FileStorage ZEO fsync durability group commit',
    classifiers=[
        'Development Status :: 3 - Alpha',
        'Framework :: ZODB',
        'Intended Audience :: Developers',
        'Intended Audience :: System Administrators',
        'Operating System :: POSIX',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Programming Language :: Python :: 3.14',
        'Programming Language :: Python :: Implementation :: CPython',
        'Topic :: Database',
        'Topic :: Database :: Database Engines/Servers',
    ],
    package_dir={'': 'src'},
    packages=find_packages('src'),
    package_data={'': ['*.xml']},
    zip_safe=False,
    python_requires='>=3.10',
    install_requires=[
        'BTrees >= 6.0',
        # Before, a progress bar that is not shown wrote an empty line.
        'rich >= 14.3',
        'transaction >= 5.0',
        'zc.lockfile >= 4.0',
        'ZConfig >= 4.0',
        # The storage builds on internals of FileStorage that were read in
        # this release.
        'ZODB >= 6.4',
        # The server and the client build on internals of this release.
        'ZEO >= 6.2',
        'zope.interface >= 8.0',
    ],
    extras_require={
        'files': [
            'WebOb >= 1.8',
        ],
        'plots': [
            'matplotlib >= 3.8',
        ],
        'test': [
            'gunicorn >= 21.2',
            'hypothesis >= 6.100',
            'manuel >= 1.13',
            'matplotlib >= 3.8',
            'PasteDeploy >= 3.0',
            # The first that says which setuptools it needs.
            'pyramid >= 2.1',
            'waitress >= 3.0',
            'WebOb >= 1.8',
            'ZEO[test] >= 6.2',
            'ZODB[test] >= 6.4',
            'zodburi >= 3.0',
            # The first that knows the sections of ZODB 6.4.
            'Zope[wsgi] >= 6.1',
            'zope.testing >= 6.0',
            'zope.testrunner >= 8.1',
        ],
        'docs': [
            'docutils >= 0.19',
            'Sphinx >= 7.2',
        ],
    },
    entry_points={
        'console_scripts': [
            'fsync-check = fsyncstorage.check:main',
            'fsync-runzeo = fsyncstorage.server.runzeo:main',
            'fsync-time = fsyncstorage.timing.main:main',
        ],
        'paste.app_factory': [
            'files = fsyncstorage.files.application:make_application',
        ],
        'paste.filter_app_factory': [
            'files = fsyncstorage.files.filter:make_filter',
        ],
    },
)
