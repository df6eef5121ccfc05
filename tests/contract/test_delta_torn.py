"""Files of a table's log that were cut, by a machine that lost its power or a disk that was full:
that table stops, and no other; a checkpoint, which says only what entries say, is passed over while
they are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta.table import open as delta_open
from cdcsync_spark.sinks.delta.table.log import parsing
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import ORDERS, SYNC, batch, content, first_state, keys_of, rows_of, whole_snapshot

TEARS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "zeros": lambda whole: bytes(len(whole)),
    "nonsense": lambda _: b'{"add":7}\n[]\n\xff',
}


@pytest.fixture
def orders(tmp_path: Path) -> DeltaTarget:
    target = DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(ORDERS.id)
    whole_snapshot(target, [(1, "a"), (2, "b")])
    return target


def upsert(number: int) -> Callable[..., object]:
    return batch(number, Upsert(rows_of(ORDERS, [(number, f"by {number}")]), keys_of(ORDERS, [])))


def newest(target: DeltaTarget, suffix: str) -> Path:
    return max(Path(target.uri, "_delta_log").glob(f"*{suffix}"))


def tear(path: Path, how: str) -> None:
    path.write_bytes(TEARS[how](path.read_bytes()))


def stops(work: Callable[[], object], file: Path) -> None:
    with pytest.raises(PermanentError, match=file.name) as stopped:
        work()
    assert stopped.value.reason is Reason.SINK_CONFLICT


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_entry_stops_its_table(orders: DeltaTarget, tmp_path: Path, how: str) -> None:
    asleep = orders.writer(tmp_path)
    asleep.last_commit()
    orders.commit(1, upsert(1))
    file = newest(orders, ".json")
    tear(file, how)
    for work in (
        orders.last_commit,
        lambda: orders.prepare(first_state()),
        lambda: orders.writer(tmp_path).commit(1, upsert(2)),
        lambda: asleep.commit(1, upsert(2)),
    ):
        stops(work, file)
    assert newest(orders, ".json") == file, "nothing is built on it"


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_checkpoint_is_passed_over_while_the_entries_are_there(
    orders: DeltaTarget, tmp_path: Path, how: str
) -> None:
    for number in (1, 2):
        state = orders.commit(1, upsert(number))
        DeltaTable(orders.uri).create_checkpoint()
    file = newest(orders, ".checkpoint.parquet")
    tear(file, how)
    with capture_logs() as logged:
        assert orders.last_commit() == state
    assert file.name in str(logged)
    orders.writer(tmp_path).commit(1, upsert(3))
    assert content(orders) == [(1, "by 1"), (2, "by 2"), (3, "by 3")]
    older = min(Path(orders.uri, "_delta_log").glob("*.checkpoint.parquet"))
    tear(older, how)
    assert len(content(orders)) == 3, "from the first entry on"


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_checkpoint_stops_its_table_where_an_entry_is_gone(
    orders: DeltaTarget, tmp_path: Path, how: str
) -> None:
    for number in (1, 2):
        orders.commit(1, upsert(number))
        DeltaTable(orders.uri).create_checkpoint()
    file = newest(orders, ".checkpoint.parquet")
    tear(file, how)
    before = Path(orders.uri, "_delta_log", f"{int(file.name[:20]) - 1:020d}.checkpoint.parquet")
    newest(orders, ".json").unlink()
    assert before.exists()
    stops(orders.last_commit, file)
    stops(lambda: orders.writer(tmp_path).commit(1, upsert(3)), file)


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError, KeyboardInterrupt])
def test_what_the_machine_lacks_is_not_the_files_fault(error: type[BaseException]) -> None:
    with pytest.raises(error), parsing("a file"):
        raise error


def test_an_error_with_words_of_its_own_keeps_them() -> None:
    with pytest.raises(PermanentError, match="a newer program's"), parsing("a file"):
        raise fail(Reason.SINK_CONFLICT, "a newer program's")


def test_a_whole_checkpoint_of_another_kind_is_not_called_torn(
    orders: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries that would do without it may be there; but others read it."""
    DeltaTable(orders.uri).create_checkpoint()
    monkeypatch.setattr(delta_open, "_checkpointed", lambda *_: iter([{"sidecar": {}}]))
    with pytest.raises(PermanentError, match="sidecars"):
        orders.last_commit()
