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

#: Jim Fulton on zodb-dev, 13 October 2009, "ZEO and relstporage performance":
#: local clients, poll interval 0.  By objects in a transaction, storage and
#: clients: the seconds of a write, and of a cold, hot and steamin read.
ZEO_2009 = {
    1: {
        '2009: ZEO': {
            1: (0.00992, 0.00108, 0.00015, 0.00007),
            2: (0.01359, 0.00177, 0.00024, 0.00011),
            4: (0.02322, 0.00226, 0.00025, 0.00011),
            8: (0.07687, 0.00183, 0.00020, 0.00009),
            16: (0.25414, 0.00259, 0.00018, 0.00007),
        },
        '2009: RelStorage, MySQL': {
            1: (0.00405, 0.00129, 0.00076, 0.00043),
            2: (0.00635, 0.00083, 0.00043, 0.00024),
            4: (0.00836, 0.00128, 0.00047, 0.00025),
            8: (0.01236, 0.00121, 0.00055, 0.00036),
            16: (0.02846, 0.00130, 0.00056, 0.00032),
        },
    },
    4: {
        '2009: ZEO': {
            1: (0.01352, 0.00574, 0.00062, 0.00017),
            2: (0.02414, 0.00539, 0.00035, 0.00008),
            4: (0.03136, 0.00789, 0.00035, 0.00007),
            8: (0.09697, 0.00694, 0.00036, 0.00008),
            16: (0.24361, 0.01369, 0.00037, 0.00008),
        },
        '2009: RelStorage, MySQL': {
            1: (0.00841, 0.00273, 0.00159, 0.00043),
            2: (0.00678, 0.00292, 0.00202, 0.00045),
            4: (0.01343, 0.00198, 0.00108, 0.00025),
            8: (0.01910, 0.00253, 0.00111, 0.00025),
            16: (0.03413, 0.00363, 0.00158, 0.00036),
        },
    },
    334: {
        '2009: ZEO': {
            1: (0.13877, 0.40306, 0.02324, 0.00042),
            2: (0.18004, 0.39529, 0.02051, 0.00045),
            4: (0.36065, 0.38792, 0.02192, 0.00050),
            8: (0.68353, 1.57573, 0.02679, 0.00110),
            16: (1.46470, 3.40687, 0.03225, 0.00057),
        },
        '2009: RelStorage, MySQL': {
            1: (0.11370, 0.09461, 0.05026, 0.00063),
            2: (0.12573, 0.10313, 0.07746, 0.00072),
            4: (0.25860, 0.21972, 0.14529, 0.00150),
            8: (0.51280, 0.44516, 0.45004, 0.00126),
            16: (1.00606, 1.03924, 1.29605, 0.00102),
        },
    },
}
_ZEO_2009_SERVER = (
    '2009: Jim Fulton on zodb-dev, 13 October 2009; ZODB 3.9.1 on Ubuntu 9.04'
    ' (2.2 GHz Core 2 Duo, SATA disk)')
ZEO_2009_SOURCE = f'{_ZEO_2009_SERVER}, unix sockets.'

#: The same, remote clients, poll interval 2.
ZEO_2009_REMOTE = {
    1: {
        '2009: ZEO, remote': {
            1: (0.03733, 0.00207, 0.00015, 0.00007),
            2: (0.01772, 0.00233, 0.00015, 0.00007),
            4: (0.06634, 0.00236, 0.00015, 0.00007),
            8: (0.08080, 0.00364, 0.00016, 0.00007),
            16: (0.09270, 0.00440, 0.00016, 0.00007),
        },
        '2009: RelStorage, MySQL, remote': {
            1: (0.01905, 0.00240, 0.00141, 0.00008),
            2: (0.01962, 0.00240, 0.00147, 0.00008),
            4: (0.03471, 0.00262, 0.00162, 0.00008),
            8: (0.06410, 0.00287, 0.00164, 0.00008),
            16: (0.13171, 0.00316, 0.00174, 0.00009),
        },
    },
    4: {
        '2009: ZEO, remote': {
            1: (0.01809, 0.00683, 0.00034, 0.00007),
            2: (0.02210, 0.00816, 0.00034, 0.00007),
            4: (0.07079, 0.00991, 0.00036, 0.00007),
            8: (0.08739, 0.01388, 0.00035, 0.00007),
            16: (0.09264, 0.01376, 0.00035, 0.00007),
        },
        '2009: RelStorage, MySQL, remote': {
            1: (0.02432, 0.00597, 0.00480, 0.00008),
            2: (0.02873, 0.00645, 0.00513, 0.00008),
            4: (0.03521, 0.00655, 0.00520, 0.00009),
            8: (0.06754, 0.00706, 0.00557, 0.00009),
            16: (0.13904, 0.00777, 0.00593, 0.00010),
        },
    },
    334: {
        '2009: ZEO, remote': {
            1: (0.17738, 0.57640, 0.01969, 0.00038),
            2: (0.20881, 0.67896, 0.01973, 0.00038),
            4: (0.28996, 0.92163, 0.01993, 0.00038),
            8: (0.41571, 1.25167, 0.02008, 0.00040),
            16: (0.60316, 1.54352, 0.02033, 0.00039),
        },
        '2009: RelStorage, MySQL, remote': {
            1: (0.61835, 0.47054, 0.39015, 0.00041),
            2: (0.65081, 0.45832, 0.39691, 0.00043),
            4: (0.70280, 0.47962, 0.41136, 0.00044),
            8: (0.81672, 0.50079, 0.50144, 0.00045),
            16: (1.23906, 0.60130, 0.68200, 0.00049),
        },
    },
}
ZEO_2009_REMOTE_SOURCE = (
    f'{_ZEO_2009_SERVER}; remote: clients on another machine (8 cores of'
    ' 2.33 GHz Xeons), a poll interval of 2 seconds.')

#: Shane Hathaway's weblog, 2009, "The Fastest WSGI Server for Zope".  By
#: requests at a time, then by processes: requests a second.
WSGI_2009 = {
    1: {1: 400, 4: 400},
    8: {1: 276, 4: 1476},
}
WSGI_2009_SOURCE = (
    '2009: Shane Hathaway, "The Fastest WSGI Server for Zope"; a page of Zope'
    ' 3 over RelStorage 1.1.3 on MySQL, by ab, on a virtual machine with 4'
    ' cores: Paste with threads, and mod_wsgi with 4 processes of one thread;'
    ' "just under 400" both with one request at a time.')

#: Requests for files a second: by whom, sizes in KB, and who sent them.
FILES = (
    (
        '2004',
        (5, 50, 500, 5000, 50000),
        {
            'Apache 2': (2083.33, 1818.18, 561.80, 85.32, 8.05),
            'Zope, File': (174.52, 156.49, 38.36, 7.70, 0.07),
            'Zope, ExtFile': (151.75, 137.93, 35.57, 5.66, 0.09),
            'Zope, File, iterator': (155.52, 148.59, 82.03, 17.52, 2.01),
            'Zope, ExtFile, iterator': (162.34, 135.50, 57.08, 10.31, 1.68),
        },
        '2004: SlinkP, "Zope Serving Binary Large Objects from the'
        ' Filesystem"; ten requests at a time, Zope 2.7 on a 1.2 GHz'
        ' Pentium III.',
    ),
    (
        '2008, cold',
        (32, 256, 32000),
        {
            'Zope, FileStorage': (111.11, 93.62, 1.33),
            'Zope, ZEO': (121.12, 49.61, 0.27),
        },
        '2008: the same notes; one request at a time, Zope 2.11, nothing'
        ' cached.',
    ),
    (
        '2010',
        (31,),
        {
            'Apache 2.2': (2625.37,),
            'nginx 0.8': (6559.31,),
            'GridFS, module of nginx': (1083.88,),
            'GridFS, Rails Metal': (53.81,),
        },
        '2010: Chris Heald, "Serving files out of GridFS", 17 February 2010;'
        ' ten requests at a time, the last row four.',
    ),
)
