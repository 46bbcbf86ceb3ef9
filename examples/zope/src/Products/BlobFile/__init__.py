"""A file whose content is a ZODB blob, for Zope, which has none of its own.

It can be added, replaced and downloaded, and no more than that.
"""

import os
import shutil

from AccessControl import ClassSecurityInfo
from AccessControl.class_init import InitializeClass
from AccessControl.Permissions import change_images_and_files
from AccessControl.Permissions import view
from OFS.SimpleItem import SimpleItem
from ZODB.blob import Blob
from zope.interface import implementer
from ZPublisher import zpublish
from ZPublisher.Iterators import IStreamIterator

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


@implementer(IStreamIterator)
class Download:
    """Of a file; it is read when the ZODB connection is closed."""

    def __init__(self, file):
        self.read = file.read
        self.close = file.close
        self._size = os.fstat(file.fileno()).st_size

    def __len__(self):
        return self._size

    def __iter__(self):
        return self

    def __next__(self):
        piece = self.read(1 << 16)
        if not piece:
            raise StopIteration
        return piece


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
        download = Download(self._blob.open('c'))
        RESPONSE.setHeader('Content-Type', 'application/octet-stream')
        RESPONSE.setHeader('Content-Length', str(len(download)))
        return download


InitializeClass(BlobFile)


@zpublish
def addBlobFileForm(context):
    """Ask for a file."""
    return FORM


@zpublish
def addBlobFile(context, id, file):
    """Add a file."""
    context._setObject(id, BlobFile(id, file))


def initialize(context):
    context.registerClass(
        BlobFile, permission=ADD_PERMISSION,
        constructors=(addBlobFileForm, addBlobFile))
