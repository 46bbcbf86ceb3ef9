"""The result of `fsync-quorum status` as text."""

import time
from collections.abc import Iterator
from typing import Any


def of_status(found: dict[str, Any]) -> Iterator[str]:
    yield from _of_log(found)
    yield _of_voting(found)
    for each in found['members']:
        yield f'  {each["address"]}   {_of_member(each)}'
    if found['nodes'] is not None:
        yield 'nodes'
    for each in found['nodes'] or ():
        yield f'  {each["node"]:16} {_of_node(each)}'
    if not found['warnings']:
        yield 'All is well.'
        return
    yield 'Warnings:'
    for each in found['warnings']:
        yield f'  {each}'


def _of_log(found: dict[str, Any]) -> Iterator[str]:
    log, epoch = found['log'], found['epoch']
    if log is None:
        yield f'log {found["name"]}: {found["trouble"]}'
        return
    if log['head'] < log['first']:
        yield f'log {found["name"]}: no records yet'
    else:
        yield (f'log {found["name"]}: records {log["first"]:,} to'
               f' {log["head"]:,}')
    yield f'  identity  {log["identity"]}'
    if epoch is not None:
        yield f'  epoch     {epoch["number"]}'
    yield f'  lease     {found["lease"] or "nobody has it"}'


def _of_voting(found: dict[str, Any]) -> str:
    voting = found['voting']
    return ('members of etcd: too few answer' if voting is None
            else f'members of etcd: {voting} that vote')


def _of_member(member: dict[str, Any]) -> str:
    if member['trouble'] is not None:
        return f'does not answer: {member["trouble"]}'
    parts = [member['version']]
    if member['leads']:
        parts.append('leader')
    if member['learner']:
        parts.append('learner')
    of = f' of {size(member["quota"])}' if member['quota'] else ''
    parts.append(f'{size(member["in_use"])}{of} in use')
    if member['memory'] is not None:
        parts.append(f'{size(member["memory"])} of memory')
    if member['lacks']:
        parts.append('lacks records')
    return ', '.join(parts)


def _of_node(node: dict[str, Any]) -> str:
    words = _of_place(node)
    if node['silent']:
        words += ', and says nothing'
    elif node['trouble']:
        words += f', and is in trouble: {node["trouble"]}'
    return words


def _of_place(node: dict[str, Any]) -> str:
    if node['leads']:
        return 'leads'
    if node['sequence'] is None:
        return 'has left a note that cannot be read'
    if node['trimmed']:
        return f'left behind: it has records up to {node["sequence"]:,}'
    if not node['records_behind']:
        return 'has all of the log'
    words = f'{node["records_behind"]:,} records behind'
    if node['since'] is not None:
        moment = time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(node['since']))
        words += (f', {max(0, time.time() - node["since"]):.0f} seconds,'
                  f' since {moment} UTC')
    return words


def size(number: int) -> str:
    if number < 1 << 20:
        return f'{number / 1024:.0f} KB'
    if number < 1 << 30:
        return f'{number / (1 << 20):.0f} MB'
    return f'{number / (1 << 30):.1f} GB'
