"""The report of damage: what was lost, what to do, what depends on it."""

import os
from unittest import mock

import transaction
from persistent.mapping import PersistentMapping
from ZODB.tests.MinPO import MinPO

from fsyncstorage.check import lost

from ..format.sealing import changed
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import stock_file
from ..format.sealing import write
from .test_check import DAMAGE
from .test_check import CheckCase

MINPO = 'ZODB.tests.MinPO.MinPO'
COUNT = 150


class Lost(CheckCase):

    def fill(self, *values):
        """Make the objects; then change all of them, to each value."""
        db = self.database()
        with db.transaction() as connection:
            connection.root()['all'] = PersistentMapping(
                {number: MinPO() for number in range(COUNT)})
        for value in values:
            with db.transaction() as connection:
                for each in connection.root()['all'].values():
                    each.value = value
        with db.transaction() as connection:
            connection.root()['last'] = True
        db.close()
        self.data = read(self.path())
        self.begins = positions(self.data)

    def flip(self, index, at=-20):
        """One byte of that transaction, from its end."""
        place = self.begins[index + 1] + at
        write(self.path(), changed(
            self.data, place, bytes([self.data[place] ^ 1])))

    def words(self, *options, status=DAMAGE):
        found, out, err = self.run_check(*options)
        self.assertEqual((found, err), (status, ''))
        return out

    def test_a_creation(self):
        self.fill()
        self.flip(1)
        self.assertEqual(self.report(status=DAMAGE)['lost'], {
            MINPO: {'gone': COUNT},
            'persistent.mapping.PersistentMapping': {'gone': 1}})
        out = self.words()
        self.assertIn('\nLost: 151 objects\n', out)
        self.assertIn(f'\n  {MINPO}: 150 gone\n', out)
        self.assertRegex(out, 'Next: .*backup.*--salvage')
        self.assertLess(out.index('Lost'), out.index('Next'))
        self.assertLess(out.index('Next'), out.index('Damage'))

    def test_a_revision(self):
        self.fill(1)
        self.flip(2)
        self.assertEqual(self.report(status=DAMAGE)['lost'],
                         {MINPO: {'older': COUNT}})
        self.assertIn(f'{MINPO}: 150 back at an older revision', self.words())

    def test_a_revision_that_was_not_the_last(self):
        """All that depends on it is a count, and one of a kind is shown."""
        self.fill(1, 2)
        self.flip(2)
        self.assertEqual(self.report(status=DAMAGE)['lost'], {})
        out = self.words()
        self.assertIn('Lost: no object, as far as can be told', out)
        self.assertIn('records that need what is in a damaged transaction:'
                      f' {COUNT}', out)
        self.assertLess(out.count('\n'), 25)
        self.assertGreater(self.words('--verbose').count('\n'), COUNT)

    def test_a_zeroed_block(self):
        """Of what was in it, nothing can be told."""
        self.fill()
        place = self.begins[1]
        write(self.path(), changed(self.data, place, bytes(
            self.begins[2] - place)))
        self.assertIn('what was in 1 damaged place', self.words())

    def test_a_pickle(self):
        stock_file(self.path(), [({0: b'N.N.', 1: b'cm\nC\n.rubbish'}, {})])
        self.assertEqual(self.report(status=DAMAGE)['lost'],
                         {'m.C': {'unreadable': 1}})

    def test_data_that_an_undo_points_to(self):
        db = self.database()
        for value in 1, 2:
            with db.transaction() as connection:
                connection.root()['number'] = value
        db.undo(db.undoLog(0, 1)[0]['id'])
        transaction.commit()
        db.close()
        self.data = read(self.path())
        self.begins = positions(self.data)
        self.flip(1)
        self.assertEqual(
            self.report(status=DAMAGE)['lost'],
            {'(unknown class)': {'unreadable': 1}})

    def test_an_end_that_the_index_knows(self):
        self.fill(1)
        os.truncate(self.path(), self.begins[2])
        self.assertEqual(
            self.report(status=DAMAGE)['lost'], {
                MINPO: {'older': COUNT},
                'persistent.mapping.PersistentMapping': {'older': 1}})

    def test_classes_that_are_not_shown(self):
        stock_file(self.path(), [({number: b'cm\nC%d\n.rubbish' % number
                                   for number in range(30)}, {})])
        self.assertRegex(self.words(), r'\n  and \d+ objects of 10 classes')
        self.assertNotIn('more classes', self.words('--verbose'))

    def test_a_bound(self):
        self.fill()
        self.flip(1)
        with mock.patch.object(lost, 'MOST_OBJECTS', 10):
            out = self.words()
        # The tenth is the root, which has a later revision.
        self.assertIn('Lost: 9 objects, and more', out)
