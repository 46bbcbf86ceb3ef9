"""`fsync-top`: the busiest first, the one that holds objects named, and what
it makes of answers that are not those of a server of ours."""

import json
import socket
from unittest import mock

from rich.console import Console

from fsyncstorage.check.terminal import CannotRun
from fsyncstorage.fsynctop import commandline
from fsyncstorage.fsynctop import table
from fsyncstorage.fsynctop.table import rows
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics.exporters import Showing

from ..server.serving import Served
from ..support import TestCase
from ..support import Thread
from ..support import run_command
from ..support import until

HERE = '127.0.0.1', 0
HOSTILE = '[bold]\x1b[2J\n\u202e:boom: [/nonsense]'


def client(number=1, label='', transactions=(), **figures):
    return {
        'number': number, 'label': label,
        'address': f'127.0.0.1:{50000 + number}', 'version': None,
        'read_only': False, 'reads_locally': None, 'seconds': 100.0,
        **dict.fromkeys(table._RATES.values(), 0),
        'transactions': list(transactions), 'transactions_left_out': 0,
        **figures}


def holding(seconds, holds=True, objects=1):
    return {
        'state': 'voted' if holds else 'waiting for its objects',
        'holds': holds, 'seconds': seconds, 'objects': objects,
        'oids': [f'0x{number:02x}' for number in range(min(5, objects))]}


def storage(*clients, left_out=0):
    return {'clients': list(clients), 'left_out': left_out}


def answer(*clients, left_out=0):
    return {'1': storage(*clients, left_out=left_out)}


def drawn(found, width, height=None, left_out=0):
    console = Console(width=width, height=height, highlight=False,
                      force_terminal=True, color_system=None)
    with console.capture() as printed:
        console.print(table.picture(
            'here:1', found, left_out, width, height))
    return printed.get().rstrip('\n').split('\n')


class Rows(TestCase):

    def order(self, now, before=()):
        return [row.client['number'] for row in rows(
            answer(*now), answer(*before))]

    def test_rates(self):
        before = client(messages=100, received=1000, commits=7)
        now = client(messages=300, received=6000, commits=8, seconds=104.0)
        row, = rows(answer(now), answer(before))
        self.assertEqual(row.rates, {
            **dict.fromkeys(table._RATES.values(), 0),
            'messages': 50, 'received': 1250, 'commits': 0.25})

    def test_what_has_no_rate(self):
        """A new client, one of another run of the server, or an answer that
        has been kept; one of another storage."""
        now = client(messages=300)
        for before in ((), (client(2),), (client(seconds=100.0),),
                       (client(seconds=200.0),),
                       (client(address='127.0.0.1:1', seconds=50.0),)):
            with self.subTest(before):
                row, = rows(answer(now), answer(*before))
                self.assertIsNone(row.rates)
        row, = rows({'2': storage(client(seconds=101.0))}, answer(client()))
        self.assertIsNone(row.rates)

    def test_the_order(self):
        before = [client(number, seconds=99.0) for number in range(4)]
        now = [client(number, messages=count)
               for number, count in enumerate((5, 50, 0, 20))]
        self.assertEqual(self.order(now, before), [1, 3, 0, 2])
        # Those that hold for long come before them, and then who waits.
        now = [client(1, messages=1000),
               client(2, transactions=[holding(5.0)]),
               client(3, transactions=[holding(9.0)]),
               client(4, transactions=[holding(8.0, holds=False)]),
               client(5, transactions=[holding(0.5)])]
        before = [{**each, 'messages': 0, 'seconds': 99.0} for each in now]
        self.assertEqual(self.order(now, before), [3, 2, 4, 1, 5])


class Pictures(TestCase):

    def test_it_fits(self):
        now = [client(number, label=f'worker {number}' + 'x' * number,
                      messages=10 ** number, commits=3, received=10 ** number)
               for number in range(1, 9)]
        found = rows(answer(*now), answer(*(
            {**each, 'messages': 0, 'received': 0, 'seconds': 99.0}
            for each in now)))
        for width in 60, 80, 119, 120, 300:
            for height in 5, 10, 50:
                with self.subTest(width=width, height=height):
                    lines = drawn(found, width, height, left_out=2)
                    self.assertLessEqual(len(lines), max(height, 7))
                    self.assertLessEqual(max(map(len, lines)), width)
                    self.assertTrue(lines[0].startswith('here:1: 10 clients'))
                    shown = sum('worker' in line for line in lines)
                    self.assertGreater(shown, 0)
                    self.assertEqual(
                        lines[-1].strip(), f'and {10 - shown} more')

    def test_the_one_that_holds_is_named(self):
        found = rows({
            '1': storage(
                client(1, 'busy', messages=1000),
                client(2, 'holder', [holding(5.0, objects=7)]),
                client(3, 'waits', [holding(4.9, holds=False)]),
                client(4, 'waits, too', [holding(0.1, holds=False)])),
            # It waits for something else.
            '2': storage(client(5, 'other', [holding(4.0, holds=False)]))}, {})
        for width in 80, 160:
            lines = drawn(found, width)
            self.assertTrue(lines[1].startswith(
                'holder 127.0.0.1:50002 holds 7 objects (0x00, 0x01, 0x02'))
            self.assertIn('holder', lines[4])
            self.assertIn('5.0s holds 7', lines[4])
        self.assertIn('for 5.0s; 2 clients waiting in all', lines[1])
        self.assertIn('5.0s holds 7 objects (0x00', lines[4])
        self.assertIn('4.9s waiting for its objects', lines[5])
        self.assertIn('for 5.0s; 2 clients or more waiting in all',
                      drawn(found, 160, left_out=1)[1])

    def test_nobody_holds_anything_for_long(self):
        for found in rows(answer(client(1, 'a', [holding(0.9)])), {}), []:
            lines = drawn(found, 80)
            self.assertRegex(lines[0], r'^here:1: \d clients?, 0 requests')
            self.assertEqual(lines[1].strip(), 'no objects are held for long')

    def test_text_of_peers(self):
        found = rows({HOSTILE: storage(client(
            1, HOSTILE, [{**holding(3.0), 'oids': [HOSTILE]}],
            version=HOSTILE), client(2, 'x' * 1000)),
            'other': storage(client(3))}, {})
        for width in 80, 400:
            text = '\n'.join(drawn(found, width))
            self.assertTrue(text.replace('\n', '').isprintable())
        self.assertIn(r'[bold]\x1b[2J\n\u202e:boom: [/nonsense]', text)

    def test_numbers(self):
        for number, text in [
                (0, '0'), (0.04, '0.0'), (0.5, '0.5'), (9.94, '9.9'),
                (9.96, '10'), (999.4, '999'), (1000, '1.0k'),
                (123456, '123k'), (2.5e6, '2.5M'), (7e9, '7G')]:
            self.assertEqual(table.rate(number), text)
        for seconds, text in [
                (0, '0.0s'), (99.9, '99.9s'), (100, '2m'), (5939, '99m'),
                (5940, '2h'), (86400 * 2, '2d'), (86400 * 3000, '3,000d')]:
            self.assertEqual(table.duration(seconds), text)


class TopCase(Served):

    def setUp(self):
        super().setUp()
        self.patch(commandline.time, sleep=self.pause)

    def pause(self, seconds):
        """What happens between two answers."""

    def top(self, *arguments):
        return run_command(commandline.main, *arguments)

    def cannot(self, *arguments):
        """The one line that says why."""
        status, out, err = self.top(*arguments)
        self.assertEqual((status, out), (2, ''))
        self.assertEqual(err.count('\n'), 1, err)
        self.assertTrue(err.startswith('fsync-top: '))
        self.assertTrue(err[:-1].isprintable())
        return err


class OfAServer(TopCase):

    def setUp(self):
        super().setUp()
        self.patch(exporters, KEPT=0)
        storage = self.open()
        storage.metrics = showing = Showing(HERE, '1', storage)
        self.server = self.serve(storage)
        self.address = '{}:{}'.format(*showing.exporter.address)
        self.peers = []
        for number in range(3):
            peer = self.connect(self.server)
            peer.post('set_client_label', f'peer {number}')
            peer.ping()
            self.peers.append(peer)

    def pause(self, seconds):
        for _ in range(20):
            self.peers[1].ping()

    def test_once(self):
        status, out, err = self.top(self.address)
        self.assertEqual((status, err), (0, ''))
        lines = out.split('\n')
        self.assertTrue(lines[0].startswith(f'{self.address}: 3 clients, '))
        self.assertIn('peer 1', lines[4])
        self.assertEqual([each for each in lines if each != each.rstrip()], [])

    def test_the_one_that_holds_an_object(self):
        self.peers[0].vote({5: b'x'})
        asked = self.peers[2].ask_vote({5: b'y'})
        committer = self.server.services['1'].committer
        until(lambda: committer.waiting, 'it waits')
        self.patch(table, LONG=0)
        _, out, _ = self.top(self.address)
        lines = out.split('\n')
        self.assertRegex(
            lines[1], r'^peer 0 127\.0\.0\.1:\d+ holds 1 object \(0x05\) for'
            r' \d+\.\ds; 1 client waiting in all$')
        self.assertIn('peer 0', lines[4])
        self.assertIn('peer 2', lines[5])
        self.peers[0].abort()
        self.peers[2].answer(asked)

    def test_json(self):
        self.peers[0].commit({1: b'x'})
        status, out, err = self.top(f'http://{self.address}/', '--json')
        self.assertEqual((status, err), (0, ''))
        found = json.loads(out)['storages']['1']
        self.assertEqual(found['left_out'], 0)
        self.assertEqual(
            {each['label']: each['commits'] for each in found['clients']},
            {'peer 0': 1, 'peer 1': 0, 'peer 2': 0})

    def on_a_terminal(self, pauses):
        """Draw until so many pauses were made; then Ctrl-C."""
        pictures = []

        def update(drawing, picture, refresh):
            console = Console(width=100, color_system=None)
            with console.capture() as printed:
                console.print(picture)
            pictures.append(printed.get())

        def pause(seconds):
            if len(pictures) > pauses:
                raise KeyboardInterrupt
            self.pause(seconds)

        self.patch(commandline.Live, update=update)
        self.patch(commandline.time, sleep=pause)
        with mock.patch.dict('os.environ', {
                'FORCE_COLOR': '1', 'TERM': 'xterm'}):
            status, _, err = self.top(self.address)
        self.assertEqual((status, err), (130, ''))
        return pictures

    def test_on_a_terminal_until_it_is_interrupted(self):
        pictures = self.on_a_terminal(2)
        self.assertEqual(len(pictures), 3)
        self.assertIn('peer 1', pictures[-1].split('\n')[4])

    def test_a_server_that_goes_away_meanwhile_and_comes_back(self):
        there = commandline.ask(commandline._address(self.address))
        away = CannotRun('here: \x1b[2J refused')
        with mock.patch.object(
                commandline, 'ask', side_effect=[there, away, away, there]):
            pictures = self.on_a_terminal(3)
        self.assertEqual(
            ['peer 1' in picture for picture in pictures],
            [True, False, False, True])
        self.assertEqual(pictures[1].strip(), r'here: \x1b[2J refused')

    def test_by_a_name(self):
        """Which the server need not know."""
        name, port = 'zeo.example', self.address.rpartition(':')[2]
        found = socket.getaddrinfo('127.0.0.1', port)
        with mock.patch.object(socket, 'getaddrinfo', return_value=found):
            status, out, _ = self.top(f'{name}:{port}', '--json')
        self.assertEqual((status, out.count('peer')), (0, 3))

    def test_the_longest_answer(self):
        """It has room for all clients that a server tells of."""
        for peer in self.peers:
            peer.post('set_client_label', '\U0001f600' * 200)
            peer.ping()
        length = len(json.dumps(self.server.services['1'].clients().first(1)))
        self.assertGreater(length, 1200)
        oids, address = '0x' + 'f' * 16, '[' + 'f' * 39 + ']:65535'
        length += 1200 + len(address) + 5 * len(json.dumps(
            {**holding(1e9, False, 5), 'oids': [oids] * 5}))
        self.assertLess(1000 * length, commandline.MOST_BYTES)


class BadInput(TopCase):

    had_enough = False

    def answering(self, data):
        """Its address: each that asks gets these bytes."""
        listening = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listening.close)
        thread = Thread(self.answer, listening, data)
        self.addCleanup(thread.result)
        # This ends an `accept`.
        self.addCleanup(listening.shutdown, socket.SHUT_RDWR)
        return '{}:{}'.format(*listening.getsockname())

    def answer(self, listening, data):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                try:
                    connection.sendall(data)
                except ConnectionError:
                    self.had_enough = True

    def document(self, storages):
        return (b'HTTP/1.0 200 OK\r\n\r\n'
                + json.dumps({'time': 1.0, 'storages': storages}).encode())

    def test_an_answer_without_an_end(self):
        address = self.answering(b'HTTP/1.0 200 OK\r\n\r\n' + bytes(64 << 20))
        with mock.patch.object(commandline, 'MOST_BYTES', 1 << 16):
            self.cannot(address)
        until(lambda: self.had_enough, 'no more is read')

    def test_nobody_answers(self):
        with socket.create_server(('127.0.0.1', 0)) as listening:
            address = '{}:{}'.format(*listening.getsockname())
            with mock.patch.object(commandline, 'PATIENCE', 0.05):
                self.assertIn('no answer within', self.cannot(address))
        self.assertIn('refused', self.cannot(address))
        for name in 'no-such-host.invalid', '..', 'x' * 300:
            self.cannot(f'{name}:1')

    def test_the_port_of_zeo(self):
        """It ends the connection, as what it was sent is no frame."""
        self.assertIn('address of <metrics>, and not that of ZEO',
                      self.cannot(self.answering(b'')))

    def test_a_name_that_it_does_not_answer_to(self):
        self.assertIn('(421)', self.cannot(self.answering(
            b'HTTP/1.0 421 Misdirected Request\r\n\r\nask by ...')))

    def test_options_that_are_wrong(self):
        for wrong in ('', 'x', '1:2:3', '1.2.3.4', '127.0.0.1:99999',
                      'https://a:1', '/run/\x1b[2Jsocket'):
            with self.subTest(wrong):
                self.cannot(wrong)
        for wrong in '0', '0.5', '3601', 'nan', 'inf', '-1', 'x', '':
            with self.subTest(interval=wrong):
                self.cannot('8190', f'--interval={wrong}')

    def test_what_is_not_ours(self):
        good, transaction = client(), holding(1.0)
        http = b'HTTP/1.0 200 OK\r\n\r\n'
        for data in [
                b'\0\0\0\2Z5', b'SSH-2.0-OpenSSH\r\n', b'HTTP/1.0',
                b'HTTP/1.0 404 Not Found\r\n\r\n{}',
                *(http + each for each in (
                    b'', b'<html>', b'[' * 100_000, b'9' * 100_000,
                    b'\xff' * 100, b' ' * (commandline.MOST_BYTES + 10), b'[]',
                    b'{"storages": {"1": null}}', b'{"storages": []}')),
                self.document({'1': {'clients': [1], 'left_out': 0}}),
                *(self.document(answer({**good, **wrong})) for wrong in [
                    {'seconds': '1'}, {'seconds': 10 ** 400},
                    {'transactions': None},
                    {'transactions': [[]]},
                    {'transactions': [{**transaction, 'oids': [1]}]},
                    {'transactions': [{**transaction, 'objects': {}}]}])]:
            with self.subTest(data[:100]):
                self.assertIn('is not the address of metrics',
                              self.cannot(self.answering(data)))

    def test_what_could_be_ours(self):
        """Else the tests above prove nothing."""
        data = self.document({HOSTILE: storage(
            client(label=HOSTILE, transactions=[holding(2.0)]), left_out=3)})
        status, out, err = self.top(self.answering(data), '--json')
        self.assertEqual((status, err), (0, ''))
        self.assertTrue(out.replace('\n', '').isprintable())
        self.assertEqual(
            json.loads(out)['storages'][HOSTILE]['clients'][0]['label'],
            HOSTILE)

    def test_help(self):
        status, out, _ = self.top('--help')
        self.assertEqual(status, 0)
        for word in 'ADDRESS', '--json', '--interval', 'exit status':
            self.assertIn(word, out)
