"""Events that wait: in memory up to a bound, on disk beyond, and nothing left behind."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.spool import Spool, Spooled, disk_error
from cdcsync_spark.wire.binlog.facts import Operation
from support.facts import rows

A, B = TableId("shop", "a"), TableId("shop", "b")


def added(spool: Spool, bodies: Iterable[bytes], table: TableId = A) -> list[Spooled]:
    found: list[Spooled] = []
    for body in bodies:
        spool.add_to(found, rows(table, body))
    return found


def text(found: list[Spooled]) -> list[bytes]:
    return [item.event().body for item in found]


def test_what_fits_stays_in_memory(tmp_path: Path) -> None:
    found = added(Spool(str(tmp_path), 10_000), [b"x" * 100] * 4)
    assert all(item.segment is None for item in found)


def test_what_does_not_fit_goes_to_disk_and_comes_back(tmp_path: Path) -> None:
    bodies = [bytes([n]) * 3000 for n in range(8)]
    found = added(Spool(str(tmp_path), 10_000), bodies)
    assert [item.segment is None for item in found][:3] == [True, True, False]
    assert b"".join(text(found)) == b"".join(bodies)


def test_small_events_count_with_what_python_keeps_of_them(tmp_path: Path) -> None:
    """A transaction that changes rows one by one has millions of events of a few bytes."""
    found = added(Spool(str(tmp_path), 40_000), [b"x"] * 1000)
    assert sum(item.segment is None for item in found) <= 100


def test_on_disk_successive_events_of_one_table_are_one(tmp_path: Path) -> None:
    """A million small events must not be a million objects."""
    found = added(Spool(str(tmp_path), 0), [b"%06d" % n for n in range(1000)])
    assert len(found) == 1
    assert text(found) == [b"".join(b"%06d" % n for n in range(1000))]


def test_an_event_that_cannot_be_used_stays_by_itself(tmp_path: Path) -> None:
    """Joined to others it would be gone, and its table would go on without its rows."""
    defect = fail(Reason.LOG_INCOMPLETE, "an incomplete image")
    whole = rows(A, b"whole")
    found: list[Spooled] = []
    spool = Spool(str(tmp_path), 0)
    for event in (whole, whole._replace(body=b"", defect=defect), whole):
        spool.add_to(found, event)
    assert [item.head.defect for item in found] == [None, defect, None]
    assert text(found) == [b"whole", b"", b"whole"]


def test_events_whose_images_lack_the_same_columns_are_one(tmp_path: Path) -> None:
    """Their images are whole to a table that does not capture these."""
    defect = fail(Reason.ROW_IMAGE_NOT_FULL, "an incomplete image")
    spool, found = Spool(str(tmp_path), 0), list[Spooled]()
    for missing in ((1,), (1,), (2,)):
        spool.add_to(found, rows(A, b"image")._replace(defect=defect, left_out=missing))
    assert [item.head.left_out for item in found] == [(1,), (2,)]
    assert text(found) == [b"imageimage", b"image"]


def test_joined_events_stay_small(tmp_path: Path) -> None:
    """They are decoded piece by piece and in step: up to 64 KiB, of a transaction of more than a
    GiB a 16,384th part."""
    found = added(Spool(str(tmp_path), 0), [b"x" * 30_000] * 10)
    assert [item.length for item in found] == [60_000] * 5
    late = found[0]._replace(offset=16 << 30), found[1]._replace(offset=(16 << 30) + 60_000)
    joined = late[0].joined(late[1])
    assert joined is not None
    assert joined.length == 120_000


def test_events_of_other_tables_and_operations_are_kept_apart(tmp_path: Path) -> None:
    spool, found = Spool(str(tmp_path), 0), list[Spooled]()
    spool.add_to(found, rows(A, b"1"))
    spool.add_to(found, rows(B, b"2"))
    spool.add_to(found, rows(B, b"3"))
    spool.add_to(found, rows(B, b"4")._replace(operation=Operation.DELETE))
    assert [(i.head.table, i.head.operation, i.event().body) for i in found] == [
        (A, Operation.WRITE, b"1"),
        (B, Operation.WRITE, b"23"),
        (B, Operation.DELETE, b"4"),
    ]


def test_nothing_is_joined_over_a_barrier(tmp_path: Path) -> None:
    """What is before a savepoint must be there still when the rest is dropped."""
    spool, found = Spool(str(tmp_path), 0), list[Spooled]()
    spool.add_to(found, rows(A, b"1"))
    spool.add_to(found, rows(A, b"2"), barrier=1)
    spool.add_to(found, rows(A, b"3"), barrier=1)
    assert text(found) == [b"1", b"23"]


def test_after_dropped_events_nothing_is_joined_with_what_was_before_them(tmp_path: Path) -> None:
    spool, found = Spool(str(tmp_path), 0), list[Spooled]()
    spool.add_to(found, rows(A, b"1"))
    spool.add_to(found, rows(A, b"2"), barrier=1)
    del found[1:]
    spool.add_to(found, rows(A, b"3"), barrier=0)
    assert text(found) == [b"1", b"3"]


def test_a_sealed_batchs_disk_space_is_free_when_the_batch_is_gone(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), 0)
    old = added(spool, [b"x" * 1000])
    spool.rotate()
    new = added(spool, [b"y"])
    assert _deleted_files(tmp_path) == 2
    del old
    gc.collect()
    assert _deleted_files(tmp_path) == 1
    assert text(new) == [b"y"]


def test_after_a_seal_memory_is_free_again(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), 1000)
    first = added(spool, [b"x" * 600])
    spool.rotate()
    assert added(spool, [b"x" * 600])[0].segment is None
    assert text(first) == [b"x" * 600]


def test_no_file_has_a_name(tmp_path: Path) -> None:
    """However the process ends, nothing is left behind."""
    found = added(Spool(str(tmp_path), 0), [b"x"])
    assert list(tmp_path.iterdir()) == []
    assert text(found) == [b"x"]


@settings(max_examples=50)
@given(
    memory=st.integers(0, 3000),
    bodies=st.lists(st.tuples(st.sampled_from([A, B]), st.binary(max_size=300)), max_size=40),
)
def test_whatever_the_bound_every_table_gets_its_bytes_in_order(
    tmp_path_factory: pytest.TempPathFactory, memory: int, bodies: list[tuple[TableId, bytes]]
) -> None:
    spool, found = Spool(str(tmp_path_factory.getbasetemp()), memory), list[Spooled]()
    for table, body in bodies:
        spool.add_to(found, rows(table, body))
    for table in (A, B):
        assert b"".join(i.event().body for i in found if i.head.table == table) == b"".join(
            body for t, body in bodies if t == table
        )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_how_much_room_a_transaction_needs(tmp_path: Path, number: int) -> None:
    """Rule R9: beyond the disk a transaction is too large, and the user is informed."""
    error = disk_error(OSError(number, os.strerror(number)), str(tmp_path))
    assert error.reason is Reason.TRANSACTION_TOO_LARGE
    assert "MiB left" in error.message


def test_another_trouble_of_the_disk_is_worth_a_retry(tmp_path: Path) -> None:
    assert disk_error(OSError(errno.EIO, "bad"), str(tmp_path)).reason is Reason.INTERNAL_ERROR


def test_a_disk_that_cannot_be_written_is_the_products_error(tmp_path: Path) -> None:
    missing = tmp_path / "gone"
    with pytest.raises(CdcError, match="scratch disk failed"):
        added(Spool(str(missing), 0), [b"x"])


def _deleted_files(folder: Path) -> int:
    """Open files of the folder without a name, as the kernel lists them. Those of other folders do
    not count: a collection of garbage may close what other tests left."""
    links = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
        except OSError:
            continue
    return sum(link.startswith(f"{folder}/") and link.endswith("(deleted)") for link in links)
