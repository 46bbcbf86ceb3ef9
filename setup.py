"""The compiled core; and for zc.buildout, which develops what has a setup.py.

The metadata of the package are in pyproject.toml.
"""

import os
import platform
import sys
import sysconfig

from setuptools import Extension
from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

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


class Wheel(bdist_wheel):
    """For any machine, where the core could not be compiled."""

    def run(self):
        self.run_command('build')
        core = self.get_finalized_command('build_ext').get_outputs()
        if not all(map(os.path.exists, core)):
            self.distribution.ext_modules = None
            self.root_is_pure = True
        super().run()


setup(
    cmdclass={'bdist_wheel': Wheel},
    ext_modules=[CORE] if HAS_CORE else [],
    # One wheel for all releases of Python from 3.10 on.
    options={'bdist_wheel': {'py_limited_api': 'cp310'}} if HAS_CORE else {},
)
