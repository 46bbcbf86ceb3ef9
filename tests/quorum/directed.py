"""Steps in an order that random ones seldom find (`histories`)."""

from fsyncstorage.quorum.log.interface import Missing

from .fakelog import Fault
from .histories import ROOM
from .histories import Histories


def happens(steps):
    """Let them happen: what holds of any order holds of them."""
    machine = Histories()
    steps(machine)
    machine.each_has_what_the_log_has_up_to_some_record()
    machine.what_was_acknowledged_is_in_the_log()
    machine.what_is_kept_was_in_the_log()
    machine.teardown()


def a_node_reads_what_is_damaged(machine):
    """In the last byte: nothing but the CRC shows it."""
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.damage(beside=1, number=1, bit=-1)
    machine.follow(which=0, member=1, back=0, faults=[])


def a_node_asks_where_the_wrong_one_ends(machine):
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.lose(back=1)
    machine.follow(which=0, member=0, back=0, faults=[])
    machine.ask(which=0, faults=[])
    assert machine.is_at_the_end(machine.nodes[1])


def a_node_asks_the_wrong_one_alone(machine):
    """It says that there is no log, and no other one answers."""
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.engine.lie = Missing
    machine.engine.away = {1, 2}
    machine.ask(which=0, faults=[])
    machine.engine.away = set()


def a_pack_is_given_up(machine):
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.pack(which=0, faults=[])
    machine.each_has_what_the_log_has_up_to_some_record()
    machine.give_up_a_pack(which=0, faults=[])


def another_one_leads_within_a_pack(machine):
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.pack(which=0, faults=[])
    machine.lead(which=0, reads=True, faults=[])


def another_one_leads_within_a_batch(machine):
    """And packs; who follows is shown each record more than once."""
    length = 2 * ROOM + 3
    machine.a_node_leads(epochs=1, lengths=[length], wrong=0)
    machine.write(which=0, length=length,
                  faults=[Fault.NONE, Fault.BEFORE])
    machine.lead(which=0, reads=True, faults=[])
    for _ in range(2):
        machine.pack(which=1, faults=[])
    for _ in range(3):
        machine.follow(which=0, member=1, back=2, faults=[])
        machine.each_has_what_the_log_has_up_to_some_record()


def a_node_follows_what_only_the_wrong_one_has(machine):
    """In the place of what all others have there."""
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.mislead(which=0, back=1, faults=[])
    machine.follow(which=1, member=0, back=0, faults=[])
    assert machine.nodes[2].state.place.link not in machine.history
    machine.crash(which=1, saves=2, other=1)


def the_wrong_one_refuses_what_all_others_take(machine):
    """It has lost the record before."""
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.lose(back=1)
    machine.write(which=0, length=1, faults=[])
    assert machine.nodes[0].leads


def another_one_leads_past_the_first(machine):
    """And the member that the first one asks loses just that."""
    machine.a_node_leads(epochs=1, lengths=[1], wrong=0)
    machine.connect(which=1, member=1)
    machine.lead(which=0, reads=True, faults=[])
    machine.lose(back=1)
    first, second = machine.nodes[:2]
    assert first.leads and second.leads and not first.has_lease()


def one_whose_lease_is_over_writes_at_the_wrong_one(machine):
    another_one_leads_past_the_first(machine)
    machine.write(which=0, length=1, faults=[])


ALL = [
    a_node_reads_what_is_damaged,
    a_node_asks_where_the_wrong_one_ends,
    a_node_asks_the_wrong_one_alone,
    a_pack_is_given_up,
    another_one_leads_within_a_pack,
    another_one_leads_within_a_batch,
    a_node_follows_what_only_the_wrong_one_has,
    the_wrong_one_refuses_what_all_others_take,
    one_whose_lease_is_over_writes_at_the_wrong_one]
