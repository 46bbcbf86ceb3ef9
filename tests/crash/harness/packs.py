"""What the process of a pack does, done here, where it is recorded.

It does to files what that process does (`pack.child.do`), in the same order,
through the same open files.
"""

import contextlib
import os
from unittest import mock

from fsyncstorage.pack import bulk
from fsyncstorage.pack import child
from fsyncstorage.pack import process
from fsyncstorage.pack.places import Places


@contextlib.contextmanager
def recorded():
    """While this lasts, packs have a process that is recorded."""
    references = []

    class Process:

        pid = os.getpid()

        def __init__(self, *job):
            *self._job, self._watch = job

        def copied(self, next_end, marked):
            job, old, new, index, removed, gone = self._job
            parent = _Parent(self._watch.tell, next_end, marked)
            child.do(
                job, lambda length, position: os.pread(
                    old.fileno(), length, position),
                new, index, removed, gone.number, references[-1], parent)
            return parent.done

        def close(self):
            pass

    def is_possible(of_the_pack):
        references.append(of_the_pack)
        return True

    # What is committed on the way is copied by the process, too.
    with mock.patch.multiple(bulk, Process=Process, REST_OF_PROCESS=1), \
            mock.patch.object(process, 'is_possible', is_possible):
        yield


class _Parent:

    done = None

    def __init__(self, tell, next_end, marked):
        self.tell = tell
        self._next_end = next_end
        self._marked = marked

    def command(self):
        return {'copy_to': self._next}

    def report(self, message):
        if 'copied_to' in message:
            self._next = self._next_end(message['copied_to'])
        elif 'marked' in message:
            self._marked()
        else:
            done = message['done']
            self.done = process.Done(
                done['copied_to'], done['written_to'],
                Places.from_json(done['places']))
