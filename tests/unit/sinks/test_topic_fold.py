"""A topic read back: the rows that its last records have, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.kafka.topic_fold import TopicSnapshot
from contract.sinkcase import first_state


def snapshot(folder: Path, records: list[tuple[str, str | None]]) -> TopicSnapshot:
    path = str(folder / "records.arrow")
    values = [None if v is None else v.encode() for _, v in records]
    table = pa.table({"key": pa.array([k.encode() for k, _ in records]), "value": pa.array(values, pa.binary())})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    return TopicSnapshot("upsert-json", first_state(), ((path,),), None)


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
