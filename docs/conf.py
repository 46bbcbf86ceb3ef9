from importlib.metadata import version as installed

project = 'fsyncstorage'
author = 'The fsyncstorage contributors'
copyright = author  # noqa: A001 (the name is Sphinx's)
release = version = installed('fsyncstorage')

exclude_patterns = ['_build']
nitpicky = True
html_theme = 'alabaster'
html_theme_options = {
    'description': 'A FileStorage with a choice of durability',
    # As much as the recorded tables need.
    'page_width': '1160px',
}
html_copy_source = False
html_show_sourcelink = False
