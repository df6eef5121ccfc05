"""A topic read back: the rows that its last records have, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.formats.json_reader import JsonReader
from cdcsync_spark.sinks.kafka import topic_fold
from cdcsync_spark.sinks.kafka.topic_fold import TopicSnapshot
from contract.sinkcase import first_state


def snapshot(folder: Path, records: list[tuple[str, str | None]]) -> TopicSnapshot:
    path = str(folder / "records.arrow")
    values = [None if v is None else v.encode() for _, v in records]
    table = pa.table({"key": pa.array([k.encode() for k, _ in records]), "value": pa.array(values, pa.binary())})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    return TopicSnapshot(JsonReader("upsert-json"), first_state(), ((path,),), None)


def test_the_last_record_of_a_key_is_its_row(tmp_path: Path) -> None:
    records = [
        ('{"id":1}', '{"id":1,"note":"a"}'),
        ('{"id":2}', '{"id":2,"note":"b"}'),
        ('{"id":1}', '{"id":1,"note":null}'),
        ('{"id":2}', None),
    ]
    assert snapshot(tmp_path, records).scan(["note"]).read_all().to_pylist() == [{"note": None}]


def test_a_record_whose_key_is_not_its_rows_is_refused(tmp_path: Path) -> None:
    """Folded by the key of the record, compared by that of the row: both must be one."""
    records = [('{"id":1}', '{"id":2,"note":"a"}'), ('{"id":2}', '{"id":1,"note":"b"}')]
    with pytest.raises(CdcError, match="a key that is not its row's") as refused:
        snapshot(tmp_path, records).scan().read_all()
    assert refused.value.reason is Reason.SINK_CONFLICT


def test_a_topic_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends by rows, and by bytes where records are large; a filter takes keys of each."""
    records = [(f'{{"id":{n}}}', f'{{"id":{n},"note":"{n}"}}' if n % 3 else None) for n in range(20)]
    wanted = [{"id": n, "note": str(n)} for n in range(20) if n % 3]
    for rows, size in ((10_000, 1 << 20), (3, 1 << 20), (10_000, 50)):
        monkeypatch.setattr(topic_fold, "_ROWS", rows)
        monkeypatch.setattr(topic_fold, "_BYTES", size)
        found = snapshot(tmp_path, records)
        assert found.scan(["id", "note"]).read_all().to_pylist() == wanted
        some = found.scan(["note"], pc.field("id").isin([0, 4, 19])).read_all()
        assert some.to_pylist() == [{"note": "4"}, {"note": "19"}]


@pytest.mark.parametrize("value", ["[" * 100_000, "[]", '{"id":1,"note":[[]]}'])
def test_a_record_of_no_form_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(CdcError) as refused:
        snapshot(tmp_path, [('{"id":1}', value)]).scan().read_all()
    assert refused.value.reason is Reason.SINK_CONFLICT
