"""The compiled core; and for zc.buildout, which develops what has a setup.py.

The metadata of the package are in pyproject.toml.
"""

import platform
import sys
import sysconfig

from setuptools import Extension
from setuptools import setup

# Anywhere else, and where there is no compiler (`optional`), the twins of the
# core in plain Python are used (fsyncstorage.core).
HAS_CORE = (
    sys.platform == 'linux' and sys.maxsize > 1 << 32
    and platform.python_implementation() == 'CPython'
    # A build without the interpreter's lock has no limited API.
    and not sysconfig.get_config_var('Py_GIL_DISABLED'))

CORE = Extension(
    'fsyncstorage.core._core',
    [f'src/fsyncstorage/core/{name}.c'
     for name in ('module', 'source', 'answering', 'exchange', 'cache',
                  'load')],
    depends=[f'src/fsyncstorage/core/{name}.h' for name in ('core', 'client')],
    extra_compile_args=['-std=c11', '-fvisibility=hidden', '-pthread',
                        '-Wall', '-Wextra'],
    extra_link_args=['-pthread'],
    py_limited_api=True,
    optional=True,
)

setup(
    ext_modules=[CORE] if HAS_CORE else [],
    # One wheel for all releases of Python from 3.10 on.
    options={'bdist_wheel': {'py_limited_api': 'cp310'}} if HAS_CORE else {},
)
