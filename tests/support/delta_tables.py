"""Delta tables as other programs open and change them."""

from __future__ import annotations

from collections.abc import Callable

from deltalake import DeltaTable

from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Commit, Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaTarget
from contract.sinkcase import ORDERS, batch, keys_of, rows_of, whole_snapshot


def opened(target: DeltaTarget) -> DeltaTable:
    return DeltaTable(target.uri, storage_options=target.path.store.storage_options())


def upsert(*rows: tuple[int, str]) -> Upsert:
    return Upsert(rows_of(ORDERS, rows), keys_of(ORDERS, []))


def streamed(target: DeltaTarget, batches: int) -> None:
    """A copy of three rows, and batches that change row 1 and add one each."""
    whole_snapshot(target, [(n, "a") for n in range(3)])
    for n in range(1, batches + 1):
        target.commit(1, changes(n))


def changes(n: int, epoch: int = 1) -> Callable[[TableState], Commit | None]:
    return batch(n, upsert((1, f"v{n}"), (10 + n, "new")), epoch)
