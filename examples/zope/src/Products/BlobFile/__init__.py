"""A file whose content is a ZODB blob, for Zope, which has no such file.

It can be added, replaced and downloaded, but nothing more.
"""

import shutil

from AccessControl import ClassSecurityInfo
from AccessControl.class_init import InitializeClass
from AccessControl.Permissions import change_images_and_files
from AccessControl.Permissions import view
from OFS.SimpleItem import SimpleItem
from ZODB.blob import Blob
from ZPublisher import zpublish

from fsyncstorage.files.zope import BlobIterator

ADD_PERMISSION = 'Add Blob Files'

FORM = '''\
<!DOCTYPE html>
<title>Add a blob file</title>
<form action="addBlobFile" method="post" enctype="multipart/form-data">
  <input name="id" placeholder="Id" required>
  <input name="file" type="file" required>
  <button>Add</button>
</form>
'''


class BlobFile(SimpleItem):

    meta_type = 'Blob File'
    zmi_icon = 'far fa-file'

    security = ClassSecurityInfo()

    def __init__(self, id, file):
        self._setId(id)
        self._blob = Blob()
        self.replace(file)

    @security.protected(change_images_and_files)
    @zpublish
    def replace(self, file):
        """Take the content of an upload."""
        with self._blob.open('w') as blob:
            shutil.copyfileobj(file, blob)

    @security.protected(view)
    @zpublish
    def index_html(self, RESPONSE):
        """The content."""
        RESPONSE.setHeader('Content-Type', 'application/octet-stream')
        return BlobIterator(self._blob)


InitializeClass(BlobFile)


@zpublish
def addBlobFileForm(context):
    """Ask for a file."""
    return FORM


@zpublish
def addBlobFile(context, id, file):
    """Add a file."""
    context._setObject(id, BlobFile(id, file))
    context.REQUEST.RESPONSE.redirect(
        context.DestinationURL() + '/manage_main')


def initialize(context):
    context.registerClass(
        BlobFile, permission=ADD_PERMISSION,
        constructors=(addBlobFileForm, addBlobFile))
