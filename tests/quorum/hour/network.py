"""Hosts, and the links between them.

A host is a namespace of the network with one interface; a bridge joins them,
in the namespace of the run.  Nobody asks who has an address: each host knows
all others from the beginning.  To cut a link in one direction the sender gets
a wrong hardware address for the other end: what it sends is lost without a
word, as on a cable that was pulled.  (The kernels at hand had no filter, and
no `netem`, that could do it.)

(A proxy for each link was the other choice: it would have to hand on what
etcd's members say to each other, and could lose no part of a stream, and none
of its ends.)
"""

import pathlib
import subprocess
import time

NOWHERE = '02:00:00:00:ff:ff'
BRIDGE = 'bridge'
#: The run itself.
OF_THE_RUN = '10.0.0.100', '02:00:00:00:00:64'


def ip(*lines, before=()):
    """Commands of `ip`, some in one process."""
    subprocess.run(
        [*before, 'ip', '-batch', '-'], input='\n'.join(lines), text=True,
        check=True, stdout=subprocess.DEVNULL)


class Host:

    def __init__(self, name, number):
        self.name = name
        self.address = f'10.0.0.{number}'
        self._hardware = f'02:00:00:00:00:{number:02x}'
        # It does nothing but keep the namespace.
        self._keeper = subprocess.Popen(
            ['unshare', '--net', 'sleep', 'infinity'])
        ours = pathlib.Path('/proc/self/ns/net').readlink()
        its = pathlib.Path(f'/proc/{self._keeper.pid}/ns/net')
        while its.readlink() == ours:
            time.sleep(0.01)
        #: What comes before a command that runs here.
        self.inside = ('nsenter', f'--net=/proc/{self._keeper.pid}/ns/net')

    def connect(self):
        ip(f'link add to-{self.name} type veth peer name eth0'
           f' netns {self._keeper.pid}',
           f'link set to-{self.name} master {BRIDGE} up')
        ip('link set lo up', f'link set eth0 address {self._hardware} up',
           f'address add {self.address}/24 dev eth0', before=self.inside)

    def know(self, hosts):
        ip(*(_entry(each.address, each._hardware)
             for each in hosts if each is not self),
           _entry(*OF_THE_RUN), before=self.inside)

    @property
    def entry(self):
        return _entry(self.address, self._hardware)

    def send_to(self, other, is_cut):
        """Or send it nothing."""
        ip(_entry(other.address, NOWHERE if is_cut else other._hardware),
           before=self.inside)

    def close(self):
        self._keeper.kill()
        self._keeper.wait()


class Network:

    def __init__(self, names):
        address, hardware = OF_THE_RUN
        ip('link set lo up', f'link add {BRIDGE} type bridge',
           f'link set {BRIDGE} address {hardware} up',
           f'address add {address}/24 dev {BRIDGE}')
        self.hosts = {
            name: Host(name, number) for number, name in enumerate(names, 1)}
        for each in self.hosts.values():
            each.connect()
            each.know(self.hosts.values())
        ip(*(each.entry.replace('eth0', BRIDGE)
             for each in self.hosts.values()))

    def cut(self, pairs):
        """Of each pair the first one sends nothing to the second one."""
        for sender, receiver in pairs:
            self.hosts[sender].send_to(self.hosts[receiver], True)

    def mend(self, pairs):
        for sender, receiver in pairs:
            self.hosts[sender].send_to(self.hosts[receiver], False)

    def heal(self):
        for each in self.hosts.values():
            each.know(self.hosts.values())

    def close(self):
        for each in self.hosts.values():
            each.close()


def _entry(address, hardware):
    return (f'neighbour replace {address} lladdr {hardware} dev eth0'
            ' nud permanent')
