"""What is done to whom.

Each fault is a generator.  It draws what it does from `chosen`, claims what
nothing else may touch meanwhile, says in words what it does, does it, and then
yields the seconds until it goes on, and undoes it.  `Taken` says that it is
not possible now.

The faults stay within what is promised: while a member is damaged or replaced,
the other two are left alone.
"""

import time

from .members import DAMAGES

#: Seconds in which a pack has to go through, and until it is asked for again.
OF_A_PACK, BEHIND_A_PACK = 110, 5

#: Who is killed or frozen, and how often.
WHO = {
    'a member': (11, lambda world, chosen: [chosen.choice(world.members)]),
    'the leader of the log': (
        4, lambda world, chosen: [world.of(world.members.leader)]),
    'two members': (3, lambda world, chosen: chosen.sample(world.members, 2)),
    'all members': (2, lambda world, chosen: list(world.members)),
    'the primary': (16, lambda world, chosen: [world.primary()]),
    'the standby': (11, lambda world, chosen: [world.standby()]),
    'both nodes': (2, lambda world, chosen: list(world.nodes)),
    'a client': (5, lambda world, chosen: [chosen.choice(world.clients)]),
}


def until(condition, seconds):
    """Wait for it, or for so long."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        yield 0.2


# Processes

def _somebody(world, chosen):
    """Words, and processes."""
    who, = chosen.choices(list(WHO), [often for often, _ in WHO.values()])
    found = WHO[who][1](world, chosen)
    return f'{who} ({", ".join(each.name for each in found)})', found


def killed(world, chosen):
    seconds = chosen.choice([0, chosen.uniform(0, 12)])
    words, found = _somebody(world, chosen)
    with world.claimed(*(each.name for each in found)):
        yield f'{words}, by kill -9, for {seconds:.1f} s'
        for each in found:
            each.kill()
        yield seconds
        for each in found:
            each.start()
        # Nobody touches a member before it is back.
        members = [each for each in found if each in world.members]
        yield from until(lambda: all(each.is_sound for each in members), 30)


def frozen(world, chosen):
    seconds = chosen.uniform(0.3, 14)
    words, found = _somebody(world, chosen)
    with world.claimed(*(each.name for each in found)):
        yield f'{words}, by SIGSTOP, for {seconds:.1f} s'
        for each in found:
            each.freeze()
        yield seconds
        for each in found:
            each.thaw()


def member_damaged(world, chosen):
    """Or its disk is lost.  In the end it is replaced."""
    member = chosen.choice(world.members)
    how = chosen.choice([*DAMAGES, None])
    seed, seconds = chosen.random(), chosen.uniform(3, 25)
    with world.claimed(*world.all_of_the_log):
        world.need(world.members_are_sound())
        yield f'{member.name}: {how or "its disk is lost"}'
        member.kill()
        if how is not None:
            # Without it, the others come to have all that was answered for.
            others = [each for each in world.members if each is not member]
            yield from until(lambda: all(
                each.is_sound for each in others), 20)
            file = member.damage(how, seed)
            member.start()
            yield seconds
            world.say(f'{member.name}, with its damaged {file}, '
                      + ('runs' if member.runs else 'does not start')
                      + ': it is replaced')
        for _ in world.members.replace(member):
            yield 0.2


# What an operator does to nodes

def node_ended(world, chosen):
    role = chosen.choice([world.primary, world.standby])
    seconds = chosen.choice([0, chosen.uniform(0, 8)])
    node = role()
    with world.claimed(node.name):
        yield f'{node.name}, by SIGTERM, for {seconds:.1f} s'
        yield from _ended(world, node)
        yield seconds
        node.start()


def _ended(world, node):
    node.terminate()
    yield from until(lambda: not node.runs, 40)
    if node.runs:
        world.say(f'{node.name} did not end at SIGTERM within 40 s')
        node.kill()


def step_down(world, chosen):
    words = chosen.choice(['step-down', 'promote'])
    standby = world.standby()
    with world.claimed('asked'):
        yield words
        command = standby.quorum(words, *(
            [standby.name] if words == 'promote' else []))
        yield from _until_it_has_ended(world, command)


def _until_it_has_ended(world, command):
    yield from until(lambda: command.poll() is not None, 60)
    if command.poll() is None:
        command.kill()
    said, _ = command.communicate()
    last = said.decode(errors='replace').strip().rpartition('\n')[2]
    world.say(f'fsync-quorum: status {command.returncode}, {last}')
    return command.returncode


def pack(world, chosen):
    """Asked for again, until one goes through: its client loses the connection
    at each change of the leader, and a takeover ends the pack."""
    client = chosen.choice(world.clients)
    with world.claimed('pack', client.name):
        yield f'asked for by {client.name}'
        deadline = time.monotonic() + OF_A_PACK
        while (left := deadline - time.monotonic()) > 0:
            client.tell('pack')
            yield from until(lambda: client.packed, left)
            world.say(f'pack: {client.packed or "no answer yet"}')
            if client.packed == 'packed':
                break
            yield BEHIND_A_PACK


# Disks of nodes

def disk_full(world, chosen):
    role = chosen.choice([world.primary, world.standby])
    seconds = chosen.uniform(2, 12)
    node = role()
    with world.claimed(f'disk {node.name}'):
        yield f'of {node.name}, for {seconds:.1f} s'
        node.fill_disk()
        yield seconds
        node.make_room()


def disk_lost(world, chosen):
    """Of a node that follows: it is made anew."""
    node, other = world.standby(), world.primary()
    with world.claimed(node.name, f'disk {node.name}', f'disk {other.name}',
                       'asked'):
        yield f'of {node.name}: a bootstrap from {other.name}'
        node.kill()
        node.lose_disk()
        for _ in range(5):
            # The log would take it for another node of this name.
            yield from _until_it_has_ended(
                world, other.quorum('forget', node.name, '--yes'))
            command = node.quorum(
                'bootstrap', '--from', other.disk, '--blobs', other.blobs)
            if (yield from _until_it_has_ended(world, command)) == 0:
                break
            node.lose_disk()
            yield 2
        node.start()


# Links

def cut_off(world, chosen):
    """A node, a member or a client sends nothing to others, or hears nothing
    of them, or both."""
    kind, peers = chosen.choices(
        [(world.nodes, [world.members, world.clients]),
         (world.members, [world.members]), (world.clients, [world.nodes])],
        [10, 6, 4])[0]
    host, seconds = chosen.choice(kind).name, chosen.uniform(0.5, 14)
    some = [each.name for each in chosen.choice(peers) if each.name != host]
    others = chosen.choice([some, [chosen.choice(some)], [
        each for each in world.network.hosts if each != host]])
    there = [(host, other) for other in others]
    back = [(other, host) for other in others]
    pairs, words = chosen.choice([
        (there + back, 'to and from'), (there + back, 'to and from'),
        (there, 'to'), (back, 'from')])
    members = set() if host in world.node_names else (
        world.log_names.intersection(others))
    with world.claimed(*(f'links of {each}' for each in {host, *members})):
        yield (f'{host} sends nothing {words} {" ".join(others)},'
               f' for {seconds:.1f} s')
        world.network.cut(pairs)
        yield seconds
        world.network.mend(pairs)


#: How often each of them is chosen.
WEIGHTS = {
    killed: 31, frozen: 23, member_damaged: 8, node_ended: 6, step_down: 6,
    pack: 8, disk_full: 5, disk_lost: 3, cut_off: 20}
