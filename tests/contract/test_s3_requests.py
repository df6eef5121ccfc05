"""What a commit asks of an object store: one put for the data, one for the vectors, one for the
log, and two requests before."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, whole_snapshot
from contract.stores import S3Server

NAMES = {
    r"stream-\w+\.zstd\.parquet": "data",
    r"_vectors/deletion_vector_[\w-]+\.bin": "vectors",
    r"_delta_log/0{19}(\d)\.json": r"entry \1",
}


def asked(server: S3Server, bucket: str, before: int) -> list[str]:
    """The requests after the first `before`, in short."""
    found = []
    for method, path in server.requests(bucket)[before:]:
        name = path.removeprefix("/cdc/shop/orders/")
        for pattern, short in NAMES.items():
            name = re.sub(f"^{pattern}$", short, name)
        found.append(f"{method} {name}")
    return found


def test_the_requests_of_a_commit_and_of_an_opening(s3: S3Server, tmp_path: Path) -> None:
    """Data and deletion vectors are put at the same time. The checks: the newest entry is still
    ours, also right before the next one, and no other has come (404)."""
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    s3.make_bucket(bucket)
    target = DeltaSink(s3.store(bucket, tmp_path), SYNC).target(ORDERS.id)
    model = Model(ORDERS, {(n,): (n, "a") for n in range(9)})
    whole_snapshot(target, model.content)
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, model.apply([(1, "b")], [(0,)])))
    before = len(s3.requests(bucket))
    writer.commit(1, batch(2, model.apply([(1, "c"), (20, "c")], [(3,)])))
    *checks, data, vectors, again, entry = asked(s3, bucket, before)
    assert checks == ["GET entry 2", "GET entry 3"]
    assert sorted([data, vectors]) == ["PUT data", "PUT vectors"]
    assert [again, entry] == ["GET entry 2", "PUT entry 3"]
    before = len(s3.requests(bucket))
    for _ in range(4):
        assert not writer.has_news()
    assert asked(s3, bucket, before) == [*4 * ["HEAD entry 4"], "GET entry 3"]
    before = len(s3.requests(bucket))
    assert target.writer(tmp_path).last_commit() is not None
    listed, *read = asked(s3, bucket, before)
    assert listed.startswith("GET ?list-type=2")
    assert read == [f"GET entry {n}" for n in range(5)]
    assert content(target) == model.content
