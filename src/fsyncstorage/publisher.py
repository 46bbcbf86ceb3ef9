"""Publishing: from one moment on, everybody sees a transaction.

`Publisher.publish` calls the `f(tid)` of each commit, in tid order, and after
each lets readers see it (I5).  Meanwhile the *gate* is closed: who asks for
the current state waits until publishing is over; who reads as of a tid does
not ask here at all.

For direct use, whichever thread finds something to publish does it, also for
others: the leader of a batch for all of the batch.  An event loop that must do
it itself takes it over by `owned_by`: then publishing only notifies it, and it
calls `publish` in its own thread.

`f` is called once, except when an interrupt (KeyboardInterrupt) breaks it off:
then it is called again.  A second invalidation is harmless, a missing one is
not.

Locks: `_lock` serializes publishing and is held while `f` runs.  Whoever waits
for it holds no other lock of the storage.  So `f` must not finish another
transaction of the same storage: it would wait for itself.
"""

import threading


class Publisher:

    def __init__(self, show):
        self._show = show           # called to let readers see up to a point
        self._lock = threading.Lock()
        #: The gate: closed to others while a thread is in it.
        self.busy_thread = None
        self._notify = None

    def owned_by(self, notify):
        """From now on `notify()` is called, and its owner publishes."""
        self._notify = notify

    @property
    def owned(self):
        return self._notify is not None

    def offer(self, flusher):
        """Something may be publishable, or a sync failed."""
        notify = self._notify
        if notify is None:
            self.publish(flusher)
        else:
            notify()

    def publish(self, flusher):
        """Publish all that may be published, and tell those that asked."""
        me = threading.get_ident()
        if self.busy_thread == me:
            return  # called by an `f`: we are about to
        try:
            with self._lock:
                try:
                    self.busy_thread = me
                    commit = flusher.next_to_publish()
                    while commit is not None:
                        if commit.on_publish is not None:
                            self._announce(commit)
                        self._show(commit)
                        commit = flusher.published(commit)
                    if flusher.pipeline.failed:
                        # From now on, only what is durable.
                        self._show(flusher.visible)
                finally:
                    self.busy_thread = None
        finally:
            if flusher.untold:
                flusher.tell()

    def _announce(self, commit):
        try:
            commit.on_publish(commit.tid)
        except Exception as error:
            # It is durable: too late to fail.  Its committer is told.
            commit.error = error
        commit.on_publish = None

    def pass_gate(self):
        """Wait while something is being published by another thread."""
        if self.busy_thread not in (None, threading.get_ident()):
            with self._lock:
                pass
