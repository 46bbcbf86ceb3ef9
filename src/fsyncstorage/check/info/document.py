"""The report as plain data: what `--json` writes, and what the tables show.

Its shape is described in docs/info.rst.  Names are text, oids and tids are in
hex, sizes are bytes.
"""

import heapq

from ...format import scan
from ...format.classes import OTHERS
from ..blobfiles import KINDS
from . import moments


def made(survey, top, blob_files=None):
    """The document of a survey, and of `BlobFiles`, after their reading."""
    classes = classes_of(survey)
    return {
        **totals(survey),
        'objects': sum(row['objects'] for row in classes),
        'classes': {
            **most(classes, top),
            'without_name': survey.classes.records[
                survey.classes.named(OTHERS)]},
        'blobs': blob_files and blobs(survey, blob_files, top),
    }


def totals(survey):
    data, current = sum(survey.classes.bytes), sum(survey.objects.sizes)
    headers = (scan.RECORD_HEADER * survey.records
               + scan.POINTER * survey.records_without_data)
    damage = survey.damage
    return {
        'size': survey.window.end,
        'end': survey.end,
        'damage': damage and {
            'position': damage.position,
            'tid': None if damage.tid is None else damage.tid.hex(),
            'reason': damage.reason},
        'first': moment(survey.first_tid),
        'last': moment(survey.last_tid),
        'transactions': survey.transactions,
        'records': survey.records,
        'bytes': {
            'all': survey.transaction_bytes,
            'current': current,
            'old': data - current,
            'record_headers': headers,
            'transactions': survey.transaction_bytes - data - headers,
        },
    }


def moment(tid):
    return None if tid is None else {
        'tid': tid.hex(), 'time': moments.name(tid)}


def classes_of(survey):
    """A row for each class of records, or of objects, that count."""
    classes, objects = survey.classes, survey.objects
    rows = [
        {'class': name, 'objects': 0, 'current': 0, 'records': records,
         'all': size}
        for name, records, size in zip(
            classes.names, classes.records, classes.bytes)]
    for position, is_counted, kind, size in zip(
            objects.positions, objects.is_counted, objects.classes,
            objects.sizes):
        if position and is_counted:
            rows[kind]['objects'] += 1
            rows[kind]['current'] += size
    return [row for row in rows if row['objects'] or row['records']]


def most(rows, top):
    """The largest rows, and the sums of the others."""
    listed = heapq.nlargest(
        top, rows, lambda row: (row['all'], row['records']))
    return {
        'count': len(rows), 'listed': listed,
        'others': {
            name: sum(row[name] for row in rows)
                  - sum(row[name] for row in listed)
            for name in ('objects', 'current', 'records', 'all')}}


def blobs(survey, found, top):
    return {
        **{kind: {'files': found.files[kind], 'bytes': found.bytes[kind]}
           for kind in KINDS},
        'without_file': survey.blob_records - found.with_file,
        'some_belong': found.some_belong,
        'packed': found.is_packed,
        'unread': {
            'count': found.unread_count,
            'listed': [{'file': path, 'reason': reason}
                       for path, reason in found.unread[:top]]},
        'orphans_listed': [
            {'oid': oid.hex(), 'tid': tid.hex(), 'bytes': size, 'file': path}
            for oid, tid, size, path in found.orphans[:top]
            if found.orphans_are_known],
    }
