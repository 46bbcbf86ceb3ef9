"""Publishing: from one moment on, everybody sees a transaction.

`Publisher.publish` calls the `f(tid)` of each commit, in tid order, and after
each lets readers see it (I5).  Meanwhile the *gate* is closed: who asks for the
current state waits until publishing is over; who reads as of a tid does not ask
here at all.

For direct use, whichever thread finds something to publish does it, also for
others: the leader of a batch for all of the batch.  An event loop that must do
it itself takes it over by `owned_by`: then publishing only notifies it, and it
calls `publish` in its own thread.

`f` is called once, except when an interrupt (KeyboardInterrupt) breaks it off:
then it is called again.  A second invalidation is harmless, a missing one is
not.

Locks: `_lock` serializes publishing and is held while `f` runs.  Whoever waits
for it holds no other lock of the storage.  `f` must not finish a transaction
of the same storage: it would wait for itself.
"""

import threading


class Publisher:

    def __init__(self, show):
        self._show = show           # called to let readers see up to a point
        self._lock = threading.Lock()
        self._busy_thread = None    # the gate: closed while a thread is in it
        self._notify = None

    def owned_by(self, notify):
        """From now on `notify()` is called, and its owner publishes."""
        self._notify = notify

    def offer(self, flusher):
        """Something may be publishable, or a sync failed."""
        notify = self._notify
        if notify is None:
            self.publish(flusher)
        else:
            notify()

    def publish(self, flusher):
        """Publish all that may be published."""
        if self._busy_thread == threading.get_ident():
            return  # called by an `f`: we are about to
        try:
            with self._lock:
                try:
                    self._busy_thread = threading.get_ident()
                    commit = flusher.next_to_publish()
                    while commit is not None:
                        commit = self._publish_one(flusher, commit)
                    if flusher.pipeline.failed:  # only what is durable, from now on
                        self._show(flusher.visible)
                finally:
                    self._busy_thread = None
        finally:
            flusher.tell()

    def _publish_one(self, flusher, commit):
        """Publish it, and return the next one."""
        announce = commit.on_publish
        if announce is not None:
            try:
                announce(commit.tid)
            except Exception as error:
                # It is durable: too late to fail.  Its committer is told.
                commit.error = error
            commit.on_publish = None
        self._show(commit)
        return flusher.published(commit)

    def pass_gate(self):
        """Wait while something is being published by another thread."""
        busy = self._busy_thread
        if busy is not None and busy != threading.get_ident():
            with self._lock:
                pass
