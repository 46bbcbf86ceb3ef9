import pathlib
import sys
from importlib.metadata import version as installed

sys.path.append(str(pathlib.Path(__file__).parent))

project = 'fsyncstorage'
author = 'The fsyncstorage contributors'
copyright = author  # noqa: A001 (the name is Sphinx's)
release = version = installed('fsyncstorage')

extensions = ['metrics', 'modules']
exclude_patterns = ['_build']
nitpicky = True
html_theme = 'furo'
html_title = 'fsyncstorage'
html_static_path = ['_static']
html_css_files = ['face.css']
html_copy_source = False
html_show_sourcelink = False
