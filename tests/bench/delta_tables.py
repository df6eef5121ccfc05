"""The table of the Delta benchmark, of any number of rows, the batches that change it, and what it
must hold after them."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.state import TableState
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import Append, Commit, Staged, Upsert
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import SYNC, WATERMARK, first_state, make_table

FILE_ROWS, _PIECE = 1_000_000, 131_072
TABLE = make_table(
    {
        "id": "bigint(20)",
        "v": "int(11)",
        "a": "bigint(20)",
        "d": "decimal(18,2)",
        "ts": "datetime(6)",
        "s": "varchar(40)",
    },
    ["id"],
)
Ids = npt.NDArray[np.int64]


def rows_of(ids: Ids, version: int) -> pa.Table:
    schema = captured_schema(TABLE)
    mixed = (ids * 2654435761 + version * 40503) % 2**40
    columns = [
        pa.array(ids),
        pa.array(np.full(len(ids), version, np.int32)),
        pa.array(mixed),
        pa.array((mixed % 10**7).astype(np.float64)).cast(pa.decimal128(18, 2)),
        pa.array(1_600_000_000_000_000 + mixed).cast(pa.timestamp("us")),
        pa.array(mixed).cast(pa.string()),
    ]
    return pa.table(columns, schema=schema)


class KeyBatches:
    """Batches of `changes` keys of one kind, and the newest version of each key (-1: deleted)."""

    def __init__(self, rows: int, kind: str, changes: int) -> None:
        self._random = np.random.default_rng(1)
        self._kind, self._top, self._changes = kind, rows, changes
        self._version = np.full(rows + FILE_ROWS, -1, np.int32)
        self._version[:rows] = 0
        self.number = 0

    def batch(self) -> Upsert:
        """Eight in ten keys are updated, one is deleted, one inserted."""
        self.number += 1
        inserted = self._changes // 10
        known = self._changes - inserted
        newest = {"uniform": 0, "newest": known, "mixed": known * 9 // 10}[self._kind]
        random, top = self._random, self._top
        edge = top - top // 100 if newest else top
        older = random.choice(edge, known - newest, replace=False)
        newer = random.choice(top - edge, newest, replace=False)
        chosen = np.sort(np.concatenate([older, edge + newer]))
        gone = chosen[random.random(len(chosen)) < 1 / 9]
        changed = np.concatenate([np.setdiff1d(chosen, gone), np.arange(top, top + inserted)])
        self._top += inserted
        self._version[gone], self._version[changed] = -1, self.number
        return Upsert(rows_of(changed, self.number), pa.table({"id": gone}))

    def alive(self, key: int) -> bool:
        return bool(self._version[key] >= 0)

    @property
    def expected(self) -> tuple[int, int, int]:
        """Count, and the sums of `id` and `v`."""
        ids = np.flatnonzero(self._version >= 0)
        return len(ids), int(ids.sum()), int(self._version[ids].sum())


def target_in(folder: Path) -> DeltaTarget:
    return DeltaSink(open_store(str(folder)), SYNC).target(TABLE.id)


def filled(folder: Path, rows: int) -> None:
    fill(target_in(folder), rows)


def fill(target: Target, rows: int) -> None:
    """The snapshot: files of a million rows in the order of the key, by the product's own
    writer."""
    target.prepare(first_state(TABLE))

    def staged(start: int) -> Staged:
        end = min(start + FILE_ROWS, rows)
        pieces = (rows_of(np.arange(at, min(at + _PIECE, end)), 0) for at in range(start, end, _PIECE))
        return target.stage(TABLE, (b for piece in pieces for b in piece.combine_chunks().to_batches()), "wave")

    with ThreadPoolExecutor(2) as pool:
        files = [file for made in pool.map(staged, range(0, rows, FILE_ROWS)) for file in made]

    def build(found: TableState) -> Commit:
        return Commit(found.after_wave([Split()], FilePosition(WATERMARK), WATERMARK, rows, 0), Append(tuple(files)))

    target.commit(1, build)


def linked(folder: Path, copy: Path) -> Path:
    """A copy of the table that shares its files, which are never changed."""
    return Path(shutil.copytree(folder, copy, copy_function=os.link))


def folder_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
