"""What the figures of a disk mean, in plain words.

Nothing is measured here.  No figure proves that a disk keeps what it confirms;
only a power cut does.  But some figures prove that it does not.
"""

import dataclasses
from statistics import median

from fsyncstorage.commit.policies import POLICIES

from .results.wording import duration

#: Seconds of one sync.  No device that keeps data is faster than this,
NO_DISK = 20e-6
#: and no device without a cache is faster than this.
NEEDS_CACHE = 200e-6

MEMORY = 'tmpfs', 'ramfs'

#: A sync costs something.  If commits with it are faster by this factor than
#: without, something else has slowed the latter.
_CONTRADICTION = 1.5

#: The same for each disk: what the figures show is what it costs.
ADVICE = (
    'Keep the defaults: durability group-commit loses nothing that was'
    ' acknowledged, and a lone committer does not wait for others. Choose'
    ' interval only for data that may lose the last sync-interval.')


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured; of syncs, for the way that FsyncStorage takes."""

    file_system: str
    #: The load average before the start, divided by the processors.
    load: float
    #: The median, in seconds.
    sync: float
    #: Commits a second, by policy, by number of committers and by round.
    commits: dict


def is_no_disk(figures):
    return figures.file_system in MEMORY or figures.sync < NO_DISK


def of_disk(figures):
    """Can this disk keep what it confirms?  A few sentences."""
    took = duration(figures.sync)
    if figures.file_system in MEMORY:
        return (
            f'This is no disk: {figures.file_system} is memory. A power cut'
            ' takes back everything, whatever the policy. Measure the'
            ' directory that will hold Data.fs.')
    if is_no_disk(figures):
        return (
            f'This is no disk: none keeps data within {took}. Something'
            ' confirms syncs without making them: a virtual machine, a mount'
            ' option, a library. A power cut takes back acknowledged commits,'
            ' whatever the policy. Keep nothing here that matters.')
    if figures.sync < NEEDS_CACHE:
        return (
            f'A sync takes {took}. That is honest only with a cache that a'
            ' power cut does not empty: capacitors in a server SSD, a battery'
            ' on a RAID controller, here or at the host of a virtual machine.'
            ' Without one, a power cut takes back acknowledged commits,'
            ' whatever the policy. Ask who runs the machine.')
    if of_noise(figures):
        return (
            f'A sync took {took} while something else kept the machine busy.'
            ' That says nothing about the disk.')
    return (
        f'A sync takes {took}, as with a disk that waits until the data are'
        ' safe. Whether it tells the truth, only a power cut shows.')


def of_noise(figures):
    """Why the figures cannot be trusted; or None."""
    if figures.load > 1:
        reason = 'More processes wanted to run than there are processors.'
    elif any(
            _rate(figures, name, committers)
            > _CONTRADICTION * _rate(figures, 'none', committers)
            for name, policy in POLICIES.items() if policy.promises
            for committers in figures.commits[name]):
        reason = (
            'They contradict each other: commits that are synced were faster'
            ' than commits that are not.')
    else:
        return None
    return (
        f'Do not trust these figures. {reason} Measure again when nothing else'
        ' uses the machine and the disk. Until then choose the default,'
        ' durability group-commit.')


def _rate(figures, policy, committers):
    return median(figures.commits[policy][committers].values())
