"""What the figures of a disk mean, in plain words.

Nothing is measured here.  No figure proves that a disk keeps what it confirms;
only a power cut does.  But some figures prove that it does not.
"""

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


def is_no_disk(file_system, sync):
    return file_system in MEMORY or sync < NO_DISK


def of_disk(file_system, sync, noise):
    """Can this disk keep what it confirms?  A few sentences.

    `sync` is the median, in seconds, in the way that FsyncStorage takes;
    `noise` is what `of_noise` says.
    """
    took = duration(sync)
    if file_system in MEMORY:
        return (
            f'This is no disk: {file_system} is memory. A power cut takes back'
            ' everything, whatever the policy. Measure the directory that will'
            ' hold Data.fs.')
    if is_no_disk(file_system, sync):
        return (
            f'This is no disk: none keeps data within {took}. Something'
            ' confirms syncs without making them: a virtual machine, a mount'
            ' option, a library. A power cut takes back acknowledged commits,'
            ' whatever the policy. Keep nothing here that matters.')
    if sync < NEEDS_CACHE:
        return (
            f'A sync takes {took}. That is honest only with a cache that a'
            ' power cut does not empty: capacitors in a server SSD, a battery'
            ' on a RAID controller, here or at the host of a virtual machine.'
            ' Without one, a power cut takes back acknowledged commits,'
            ' whatever the policy. Ask who runs the machine.')
    if noise:
        return (
            f'A sync took {took} while something else kept the machine busy.'
            ' That says nothing about the disk.')
    return (
        f'A sync takes {took}, as with a disk that waits until the data are'
        ' safe. Whether it tells the truth, only a power cut shows.')


def of_noise(load, commits):
    """Why the figures cannot be trusted; or None.

    `load` is the load average before the start, divided by the processors;
    `commits` are the rates of the rounds, by policy, in the same order of
    races for each.
    """
    rates = {policy: [median(each) for each in races]
             for policy, races in commits.items()}
    if load > 1:
        reason = 'More processes wanted to run than there are processors.'
    elif any(
            synced > _CONTRADICTION * not_synced
            for name, policy in POLICIES.items() if policy.promises
            for synced, not_synced in zip(rates[name], rates['none'])):
        reason = (
            'They contradict each other: commits that are synced were faster'
            ' than commits that are not.')
    else:
        return None
    return (
        f'Do not trust these figures. {reason} Measure again when nothing else'
        ' uses the machine and the disk. Until then choose the default,'
        ' durability group-commit.')
