"""Random lives of a Delta table whose schema changes, against a model: batches, steps, maintenance,
deaths, restarts and other programs' commits, in any order; after each all readers return the rows.

The model is a dictionary from key to values by column name; a step is applied to it value by value.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Converted, Filled, Kept, Origin
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Change, Commit, Empty, Evolve, Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import DEATHS, NOTHING_KEPT, SMALL_STEPS, read_by_delta_rs, read_by_duckdb
from contract.sinkcase import SYNC, batch, content, in_order, make_table, whole_snapshot
from support.deaths import Died, dying_at

IDS = st.integers(0, 20)
NAMES = ("a", "b", "c", "d")
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "int(11)": st.none() | st.integers(-3, 3),
    "bigint(20)": st.none() | st.integers(-(2**40), 2**40),
    "time": st.sampled_from([None, "-00:00:01", "838:59:59"]),
    "time(3)": st.sampled_from([None, "-00:00:01.000", "12:00:00.125"]),
}
WIDER = {"int(11)": "bigint(20)", "time": "time(3)"}
STEP_DEATHS = (*DEATHS, "step-staged")


@dataclass(frozen=True)
class Columns:
    """A target's columns with their declared types; `gone` are those that the source dropped and
    that are kept."""

    types: tuple[tuple[str, str], ...]
    gone: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.types]

    @property
    def captured(self) -> dict[str, str]:
        return {name: kind for name, kind in self.types if name not in self.gone}

    @property
    def capture(self) -> Capture:
        return make_table(self.captured, ["id"])

    @property
    def schema(self) -> TargetSchema:
        whole = TargetSchema.of(make_table(dict(self.types), ["id"])).columns
        return TargetSchema(
            tuple(TargetColumn(c.name, c.type, None if c.name in self.gone else c.name) for c in whole), ("id",)
        )


class StepLife(RuleBasedStateMachine):
    """One table, its model and its writer."""

    folder: ClassVar[Path]

    @initialize(numbers=st.sets(IDS), key=st.sampled_from(["int(11)", "varchar(20)"]))
    def make(self, numbers: set[int], key: str) -> None:
        self.key_type = key
        self.columns = Columns((("id", key), ("a", "int(11)"), ("b", "time")))
        table = self.columns.capture
        lake = str(self.folder / uuid.uuid4().hex)
        self.target: DeltaTarget = DeltaSink(open_store(lake), SYNC, policy=SMALL_STEPS).target(table.id)
        self.rows: dict[Any, dict[str, Any]] = {
            k: {"id": k, "a": n, "b": "-00:00:01"} for n in numbers for k in [self.key(n)]
        }
        whole_snapshot(self.target, [tuple(r.values()) for r in self.rows.values()], table)
        DeltaTable(self.target.uri).alter.set_table_properties(NOTHING_KEPT)
        self.number = 0
        self.restart()

    def key(self, number: int) -> Any:
        return number if self.key_type == "int(11)" else f"key {number}"

    @rule()
    def restart(self) -> None:
        """Another process: nothing is known but the Delta log."""
        self.writer = self.target.writer(self.folder)

    def publish(self, change: Change, columns: Columns, death: str | None) -> None:
        self.number += 1
        plain = batch(self.number, change)

        def build(found: TableState) -> Commit | None:
            commit = plain(found)
            if commit is None:
                return None
            return replace(commit, state=replace(commit.state, capture=columns.capture, schema=columns.schema))

        if death is not None:
            try:
                with dying_at(death):
                    self.writer.commit(1, build)
            except Died:
                self.restart()
        self.writer.commit(1, build)
        assert self.writer.status.fallback == ""
        self.columns = columns

    @rule(
        data=st.data(),
        ids=st.sets(IDS, max_size=6),
        gone=st.sets(IDS, max_size=4),
        death=st.sampled_from([None, *DEATHS]),
    )
    def upsert(self, data: st.DataObject, ids: set[int], gone: set[int], death: str | None) -> None:
        made = []
        for key in map(self.key, sorted(ids)):
            values = {n: data.draw(VALUES[k]) for n, k in self.columns.captured.items() if n != "id"}
            made.append({"id": key, **dict.fromkeys(self.columns.gone), **values})
        schema = arrow_schema(self.columns.schema)
        deleted = [self.key(n) for n in sorted(gone - ids)]
        deletes = pa.table({"id": pa.array(deleted, schema.field("id").type)})
        self.publish(Upsert(pa.Table.from_pylist(made, schema), deletes), self.columns, death)
        self.rows |= {row["id"]: row for row in made}
        for key in deleted:
            self.rows.pop(key, None)

    # -- steps

    def evolve(self, columns: Columns, origins: Sequence[Origin], death: str | None) -> None:
        self.publish(Evolve(tuple(origins)), columns, death)
        for key, row in self.rows.items():
            values = [taken(row, origin) for origin in origins]
            self.rows[key] = dict(zip(columns.names, values, strict=True))

    @rule(data=st.data(), death=st.sampled_from([None, *STEP_DEATHS]))
    def add(self, data: st.DataObject, death: str | None) -> None:
        """A new name, or that of a dropped column which is kept; at any place, filled or NULL."""
        free = [n for n in NAMES if n not in self.columns.captured]
        if not free:
            return
        name, kind = data.draw(st.sampled_from(free)), data.draw(st.sampled_from(sorted(VALUES)))
        value = data.draw(VALUES[kind])
        others = [(t, Kept(t[0])) for t in self.columns.types if t[0] != name]
        others.insert(data.draw(st.integers(0, len(others))), ((name, kind), Filled(value)))  # type: ignore[arg-type]
        columns = Columns(tuple(t for t, _ in others), self.columns.gone - {name})
        self.evolve(columns, [origin for _, origin in others], death)

    @precondition(lambda self: len(self.columns.captured) > 1)
    @rule(data=st.data(), keep=st.booleans(), death=st.sampled_from([None, *STEP_DEATHS]))
    def drop(self, data: st.DataObject, keep: bool, death: str | None) -> None:
        name = data.draw(st.sampled_from([n for n in self.columns.captured if n != "id"]))
        types = tuple(t for t in self.columns.types if keep or t[0] != name)
        columns = Columns(types, self.columns.gone | ({name} if keep else set()))
        self.evolve(columns, [Kept(n) for n, _ in types], death)

    @precondition(lambda self: len(self.columns.captured) > 1)
    @rule(data=st.data(), death=st.sampled_from([None, *STEP_DEATHS]))
    def rename(self, data: st.DataObject, death: str | None) -> None:
        """To a name that is free, or two names exchanged."""
        name = data.draw(st.sampled_from([n for n in self.columns.captured if n != "id"]))
        other = data.draw(st.sampled_from([n for n in NAMES if n not in self.columns.gone]))
        new = {name: other, other: name}
        types = tuple((new.get(n, n), kind) for n, kind in self.columns.types)
        self.evolve(Columns(types, self.columns.gone), [Kept(n) for n in self.columns.names], death)

    @rule(data=st.data(), death=st.sampled_from([None, *STEP_DEATHS]))
    def widen(self, data: st.DataObject, death: str | None) -> None:
        """Among them the key."""
        narrow = [n for n, kind in self.columns.captured.items() if kind in WIDER]
        if not narrow:
            return
        name = data.draw(st.sampled_from(narrow))
        digits = {"time": 3}.get(dict(self.columns.types)[name], 0)
        types = tuple((n, WIDER[kind] if n == name else kind) for n, kind in self.columns.types)
        origins = [Converted(n, digits) if n == name else Kept(n) for n in self.columns.names]
        self.evolve(Columns(types, self.columns.gone), origins, death)

    @rule(data=st.data(), death=st.sampled_from([None, *STEP_DEATHS]))
    def reorder(self, data: st.DataObject, death: str | None) -> None:
        types = tuple(data.draw(st.permutations(self.columns.types)))
        self.evolve(Columns(types, self.columns.gone), [Kept(n) for n, _ in types], death)

    @rule(death=st.sampled_from([None, *STEP_DEATHS]))
    def empty(self, death: str | None) -> None:
        self.publish(Empty(), self.columns, death)
        self.rows = {}

    # -- all else

    @rule(steps=st.integers(1, 4))
    def maintain(self, steps: int) -> None:
        for _ in range(steps):
            self.writer.maintain()

    @rule()
    def optimize(self) -> None:
        DeltaTable(self.target.uri).optimize.compact()

    @rule()
    def checkpoint(self) -> None:
        DeltaTable(self.target.uri).create_checkpoint()

    @invariant()
    def all_agree(self) -> None:
        if hasattr(self, "rows"):
            wanted = in_order(tuple(row[n] for n in self.columns.names) for row in self.rows.values())
            assert content(self.target) == wanted
            assert read_by_delta_rs(self.target.uri) == wanted
            assert read_by_duckdb(self.target.uri) == wanted


def taken(row: Mapping[str, Any], origin: Origin) -> Any:
    """The value that a row takes from `origin`."""
    if isinstance(origin, Filled):
        return origin.value
    value = row[origin.source]
    return f"{value}.000" if isinstance(origin, Converted) and origin.digits and value is not None else value


def test_all_readers_return_the_models_rows_whatever_the_steps(tmp_path: Path) -> None:
    machine = type("Machine", (StepLife,), {"folder": tmp_path})
    chosen = settings(
        max_examples=15, stateful_step_count=20, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=chosen)
