"""What the bytes of a Data.fs and of its index mean.

From the outside in:

- view          what a reader sees: look-ups as of a transaction
- index         the index file: written, and used only if it is sound
- objectmap     where objects are, in memory that processes share
- source        what another process reads, by that map
- scan          walks through a file, and finds all damage
- headers       the headers of transactions, and their seals, without records
- window        reads a file by positions, for a scan
- seal          the checksum of a transaction, in its extension
- extension     the extension of a transaction, shown as plain data
- pickles       reads pickles, and runs no code
- references    what a record refers to
- classes       the classes of records, each with a number and figures

No module takes a lock, or starts a thread.
"""

#: The answer of a source where map and file are not enough: the process that
#: writes them must be asked.  (Here, since a client that does not read locally
#: has no use for the modules.)
UNCERTAIN = object()


class NotAMap(Exception):
    """A descriptor is not that of the object map that was announced."""
