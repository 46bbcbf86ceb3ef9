"""What others measured long ago, to stand beside what is measured here."""

#: Tim Peters on zodb-dev, 28 July 2004, "Use of fsync in FileStorage".
COMMITS_2004 = {
    'filestorage': 30.8977,
    'filestorage:vote-fsync': 15.0112,
    'filestorage:no-fsync': 2864.36,
}
COMMITS_2004_SOURCE = (
    '2004: Tim Peters on zodb-dev, 28 July 2004; 10,000 transactions of one'
    ' thread, ZODB 3.2 on a Windows XP laptop (3.2 GHz Pentium 4, IDE disk).')
