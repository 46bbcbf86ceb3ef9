"""What is done to whom.

Each is a generator.  It draws what it does from `chosen`, claims what nothing
else may touch meanwhile, says in words what it does, does it, and then yields
the seconds until it goes on, and undoes it.  `Taken` says that it is not
possible now.

The faults stay within what is promised: while a member is damaged or replaced,
the other two are left alone.
"""

from .members import DAMAGES


def until(condition, seconds):
    """Wait for it, or for so long."""
    for _ in range(int(seconds / 0.2)):
        if condition():
            return
        yield 0.2


def _frozen(world, things, seconds):
    names = [each.name for each in things]
    with world.claimed(*names):
        yield f'SIGSTOP of {" and ".join(names)}, for {seconds:.1f} s'
        for each in things:
            each.freeze()
        yield seconds
        for each in things:
            each.thaw()


# Members

def _members_killed(world, members, seconds):
    names = [each.name for each in members]
    with world.claimed(*names):
        yield f'kill -9 of {" and ".join(names)}, for {seconds:.1f} s'
        for each in members:
            each.kill()
        yield seconds
        for each in members:
            world.members.start(each)
        yield from until(lambda: all(each.is_sound for each in members), 30)


def member_killed(world, chosen):
    yield from _members_killed(
        world, [chosen.choice(world.members)], chosen.uniform(0.2, 12))


def leader_of_the_log_killed(world, chosen):
    yield from _members_killed(
        world, [world.of(world.members.leader)], chosen.uniform(0.2, 8))


def all_members_killed(world, chosen):
    yield from _members_killed(
        world, list(world.members), chosen.uniform(0.2, 5))


def member_frozen(world, chosen):
    yield from _frozen(
        world, [chosen.choice(world.members)], chosen.uniform(0.5, 12))


def majority_frozen(world, chosen):
    yield from _frozen(
        world, chosen.sample(world.members, 2), chosen.uniform(1, 8))


def member_damaged(world, chosen):
    member = chosen.choice(world.members)
    how = chosen.choice(DAMAGES)
    seed, seconds = chosen.random(), chosen.uniform(3, 25)
    with world.claimed(*world.all_of_the_log):
        world.need(world.members_are_sound())
        yield f'of {member.name}: {how}'
        member.kill()
        # Without it, the others come to have all that was answered for.
        others = [each for each in world.members if each is not member]
        yield from until(lambda: all(each.is_sound for each in others), 20)
        file = member.damage(how, seed)
        world.members.start(member)
        yield seconds
        world.say(f'{member.name}, with its damaged {file}, '
                  + ('runs' if member.runs else 'does not start')
                  + ': it is replaced')
        yield from _replaced(world, member)


def member_replaced(world, chosen):
    member = chosen.choice(world.members)
    with world.claimed(*world.all_of_the_log):
        world.need(world.members_are_sound())
        yield f'{member.name}, by one with an empty directory'
        yield from _replaced(world, member)


def _replaced(world, member):
    for _ in world.members.replace(member):
        yield 0.2


# Nodes

def primary_killed(world, chosen):
    yield from _killed(world, chosen, world.primary)


def standby_killed(world, chosen):
    yield from _killed(world, chosen, world.standby)


def _killed(world, chosen, role):
    seconds = chosen.choice([0, chosen.uniform(0, 12)])
    node = role()
    with world.claimed(node.name):
        yield f'kill -9 of {node.name}, for {seconds:.1f} s'
        node.kill()
        yield seconds
        node.start()


def primary_frozen(world, chosen):
    yield from _frozen(world, [world.primary()], chosen.uniform(0.3, 14))


def standby_frozen(world, chosen):
    yield from _frozen(world, [world.standby()], chosen.uniform(0.3, 14))


def node_ended(world, chosen):
    role = chosen.choice([world.primary, world.standby])
    seconds = chosen.choice([0, chosen.uniform(0, 8)])
    node = role()
    with world.claimed(node.name):
        yield f'SIGTERM of {node.name}, away for {seconds:.1f} s'
        yield from _ended(node)
        yield seconds
        node.start()


def _ended(node):
    node.terminate()
    yield from until(lambda: not node.runs, 40)
    if node.runs:
        node.ends.append('it did not end at SIGTERM within 40 s')
        node.kill()


def both_nodes_killed(world, chosen):
    seconds = chosen.uniform(0, 4)
    order = chosen.sample(world.nodes, 2)
    with world.claimed(*(each.name for each in world.nodes)):
        yield f'kill -9 of both nodes, for {seconds:.1f} s'
        for each in world.nodes:
            each.kill()
        for each in order:
            yield seconds
            each.start()


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


def log_limit(world, chosen):
    node = world.standby()
    with world.claimed(node.name):
        yield f'{node.name} is away until commits wait'
        yield from _ended(node)
        primary = world.primary()
        yield from until(lambda: 'limit' in primary.ready()[1], 100)
        world.say(f'{primary.name} says: {primary.ready()}')
        yield chosen.uniform(0, 5)
        node.start()


def pack(world, chosen):
    client = chosen.choice(world.clients)
    with world.claimed('pack', client.name):
        yield f'asked by {client.name}'
        yield from _packed(world, client)


def pack_and_takeover(world, chosen):
    client, wait = chosen.choice(world.clients), chosen.uniform(0, 3)
    how = chosen.choice(['kill -9', 'SIGSTOP', 'SIGTERM'])
    seconds = chosen.uniform(1, 8)
    node = world.primary()
    with world.claimed('pack', client.name, node.name):
        yield (f'asked by {client.name}, and {how} of {node.name} after'
               f' {wait:.1f} s')
        client.tell('pack')
        yield wait
        if how == 'kill -9':
            node.kill()
        elif how == 'SIGSTOP':
            node.freeze()
        else:
            yield from _ended(node)
        yield seconds
        if how == 'SIGSTOP':
            node.thaw()
        else:
            node.start()
        yield from until(lambda: client.packed, 60)
        world.say(f'pack: {client.packed or "no answer yet"}')


def _packed(world, client):
    client.tell('pack')
    yield from until(lambda: client.packed, 60)
    world.say(f'pack: {client.packed or "no answer yet"}')


# Links

def node_cut_off(world, chosen):
    """From the log, from some of it, or from everybody."""
    node, seconds = chosen.choice(world.nodes), chosen.uniform(0.5, 14)
    others = chosen.choice([
        [each.name for each in world.members],
        [chosen.choice(world.members).name],
        [each.name for each in world.clients],
        [each for each in world.network.hosts if each != node.name]])
    yield from _cut(world, chosen, [node.name], others, seconds)


def member_cut_off(world, chosen):
    member, seconds = chosen.choice(world.members), chosen.uniform(0.5, 12)
    others = chosen.choice([
        [each.name for each in world.members if each is not member],
        [chosen.choice([each for each in world.members
                        if each is not member]).name],
        [each for each in world.network.hosts if each != member.name]])
    yield from _cut(world, chosen, [member.name], others, seconds)


def client_cut_off(world, chosen):
    client, seconds = chosen.choice(world.clients), chosen.uniform(0.5, 10)
    others = chosen.choice([
        [each.name for each in world.nodes],
        [chosen.choice(world.nodes).name]])
    yield from _cut(world, chosen, [client.name], others, seconds)


def _cut(world, chosen, ours, others, seconds):
    """Both directions, or one."""
    there = [(one, other) for one in ours for other in others]
    back = [(other, one) for one, other in there]
    pairs, words = chosen.choice([
        (there + back, 'to and from'), (there + back, 'to and from'),
        (there, 'to'), (back, 'from')])
    touched = {each for pair in pairs for each in pair}
    with world.claimed(*(f'links of {each}' for each in ours), *(
            f'links of {each}' for each in touched if each in world.log_names
            and not world.node_names.intersection(ours))):
        yield (f'{" ".join(ours)} sends nothing {words} {" ".join(others)},'
               f' for {seconds:.1f} s')
        world.network.cut(pairs)
        yield seconds
        world.network.mend(pairs)


def client_killed(world, chosen):
    client, seconds = chosen.choice(world.clients), chosen.uniform(0, 5)
    with world.claimed(client.name):
        yield f'kill -9 of {client.name}, for {seconds:.1f} s'
        client.kill()
        yield seconds
        client.start()


def client_frozen(world, chosen):
    yield from _frozen(
        world, [chosen.choice(world.clients)], chosen.uniform(0.5, 10))


def slow_line(world, chosen):
    host = chosen.choice([*world.members, *world.nodes]).host
    seconds = chosen.uniform(2, 10)
    with world.claimed(f'line of {host.name}'):
        yield f'{host.name} sends 64 KB a second, for {seconds:.1f} s'
        host.slow(True)
        yield seconds
        host.slow(False)


#: How often each of them is chosen.
WEIGHTS = {
    member_killed: 6, leader_of_the_log_killed: 4, member_frozen: 5,
    majority_frozen: 3, all_members_killed: 2, member_damaged: 5,
    member_replaced: 3,
    primary_killed: 8, standby_killed: 6, primary_frozen: 8,
    standby_frozen: 5, node_ended: 6, both_nodes_killed: 2, step_down: 6,
    disk_full: 5, disk_lost: 3, log_limit: 2, pack: 3, pack_and_takeover: 5,
    node_cut_off: 10, member_cut_off: 6, client_cut_off: 4, slow_line: 4,
    client_killed: 3, client_frozen: 2}

