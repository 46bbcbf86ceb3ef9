"""For zc.buildout, which develops what has a setup.py.

The metadata of the package are in pyproject.toml.
"""

from setuptools import setup

setup()
