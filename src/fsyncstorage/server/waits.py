"""How often this thread has waited, as the system counts it.

A step that took long may have waited for a slow disk, or only for a processor
that others were using.  If many processes share few processors, the latter
happens again and again.
"""

import itertools
import resource

if hasattr(resource, 'RUSAGE_THREAD'):

    def waits():
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

else:  # the system counts it for whole processes only: assume a wait

    waits = itertools.count().__next__
