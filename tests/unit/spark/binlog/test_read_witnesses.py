"""The witnesses of a reader on MariaDB: of one server, without a gap."""

from __future__ import annotations

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, LogOffset, TransactionId
from cdcsync_spark.binlog.assembly.read_witnesses import ReadWitnesses, witnesses_since

AT = LogOffset("binlog.000001", 400)


def reader(gtid_pos: str, others: str | None = None) -> ReadWitnesses:
    known = None if others is None else MariaDbGtidPos.parse(others)
    return witnesses_since(FilePosition(AT, MariaDbGtidPos.parse(gtid_pos), others=known))


def read(witnesses: ReadWitnesses, *gtids: str) -> list[int]:
    for gtid in gtids:
        witnesses.add(TransactionId(AT, mariadb_gtid=gtid), float(gtid.rpartition("-")[2]))
    return [w.gtid.number for w in witnesses.witnesses]


def test_each_that_follows_the_one_before_is_a_witness() -> None:
    witnesses = reader("0-1-5", "0-1-5,0-3-2")
    assert read(witnesses, "0-1-6", "0-1-7") == [7, 6]
    assert witnesses.others == MariaDbGtidPos.parse("0-3-2")


def test_another_server_and_a_gap_begin_them_again() -> None:
    witnesses = reader("0-1-5", "0-1-5,0-3-2")
    assert read(witnesses, "0-1-6", "0-3-7") == []
    assert witnesses.others == MariaDbGtidPos.parse("0-1-6")
    assert read(witnesses, "0-3-8") == [8]
    assert read(witnesses, "0-3-10") == []
    assert witnesses.others == MariaDbGtidPos.parse("0-1-6")
    assert read(witnesses, "0-3-11", "1-3-12") == []
    assert witnesses.others == MariaDbGtidPos.parse("0-1-6,0-3-11")


def test_where_the_position_is_not_known_the_first_is_none() -> None:
    witnesses = reader("")
    assert read(witnesses, "0-1-5", "0-1-6") == [6]
    assert witnesses.others is None
    witnesses.learn(MariaDbGtidPos.parse("0-1-6,0-2-4"))
    assert witnesses.others == MariaDbGtidPos.parse("0-2-4")


def test_many_at_once_are_as_one_by_one() -> None:
    singly, together = reader("0-1-5", "0-1-5"), reader("0-1-5", "0-1-5")
    read(singly, *(f"0-1-{n}" for n in range(6, 60)))
    together.add_all([(Gtid("0-1", 6), 6.0, 1), (Gtid("0-1", 59), 59.0, 53)])
    assert singly.witnesses[0] == together.witnesses[0]
    assert together.witnesses[-1].gtid.number == 6
    assert singly.others == together.others == MariaDbGtidPos()
