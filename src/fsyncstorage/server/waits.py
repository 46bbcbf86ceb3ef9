"""How often this thread has waited, as the system counts it.

A step that took long may have waited for a slow disk, or only for the
processor, which others had: where many processes share few processors, that
happens again and again.
"""

import itertools
import resource

if hasattr(resource, 'RUSAGE_THREAD'):

    def waits():
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

else:  # it counts that for whole processes: always more, in doubt

    waits = itertools.count().__next__
