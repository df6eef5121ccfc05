"""What a statement means for a captured table under its policy: nothing, a step, or a stop whose
reason says whether a resnapshot fixes it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Emptied, Followed, Kind
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.schema.steps import FollowPolicy, SchemaStep, meaning, repeatable
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session, Started

STRICT = Session(1 << 21, "utf8mb4", True, 101100, Started(1_700_000_000, None, "+00:00"))
TEXT = SourceType.parse("varchar(20)", "utf8mb4")
INT = SourceType.parse("int(11)")
T = Capture(
    SourceTable(
        TableId("shop", "t"),
        (Column("id", INT, False), Column("v", TEXT), Column("a", INT), Column("b", INT)),
        "utf8mb4",
        frozenset(),
        "",
        frozenset(),
    ),
    ("id",),
    key_index="PRIMARY",
)
EVOLVE, FAIL = FollowPolicy(follow=True), FollowPolicy()


def statement(sql: str) -> Statement:
    return Statement("shop", sql, STRICT)


def step(sql: str, policy: FollowPolicy = EVOLVE, capture: Capture = T) -> Followed | Emptied:
    found = meaning(capture, statement(sql), policy)
    assert isinstance(found, (Followed, Emptied)), found
    return found


def stop(sql: str, policy: FollowPolicy = EVOLVE, capture: Capture = T) -> CdcError:
    found = meaning(capture, statement(sql), policy)
    assert isinstance(found, CdcError), found
    return found


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("ALTER TABLE t ADD c INT NULL", Kind.RESHAPE),
        ("ALTER TABLE t ADD c INT NOT NULL DEFAULT 7", Kind.FILL),
        ("ALTER TABLE t DROP v", Kind.RESHAPE),
        ("ALTER TABLE t RENAME COLUMN v TO w", Kind.RESHAPE),
        ("ALTER TABLE t MODIFY a BIGINT", Kind.RESHAPE),
        ("TRUNCATE TABLE t", Kind.EMPTY),
        ("ALTER TABLE t MODIFY v VARCHAR(20) NOT NULL", Kind.NOTHING),
        ("CREATE UNIQUE INDEX u ON t (v)", Kind.NOTHING),
    ],
)
def test_what_is_followed_is_a_step(sql: str, kind: Kind) -> None:
    assert step(sql).kind is kind


@pytest.mark.parametrize("sql", ["ALTER TABLE t COMMENT 'x'", "ALTER TABLE t ADD INDEX i (v)", "ALTER TABLE u DROP v"])
@pytest.mark.parametrize("policy", [EVOLVE, FAIL])
def test_what_changes_nothing_that_is_recorded_is_no_step(sql: str, policy: FollowPolicy) -> None:
    assert meaning(T, statement(sql), policy) is None


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("ALTER TABLE t MODIFY a SMALLINT", Reason.SCHEMA_CHANGE_REFUSED),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", Reason.SCHEMA_CHANGE_REFUSED),
        ("RENAME TABLE t TO t_old, t_new TO t", Reason.SCHEMA_CHANGE_REFUSED),
        ("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)", Reason.SCHEMA_CHANGE_REFUSED),
        ("ALTER TABLE t DROP PARTITION p", Reason.SCHEMA_CHANGE_REFUSED),
        ("RENAME TABLE t TO u", Reason.TABLE_GONE),
        ("ALTER TABLE t RENAME TO u", Reason.TABLE_GONE),
        ("DROP TABLE t", Reason.TABLE_GONE),
        ("DROP DATABASE shop", Reason.TABLE_GONE),
        ("ALTER TABLE t DROP PRIMARY KEY", Reason.NO_PRIMARY_KEY),
        ("ALTER TABLE t ENGINE=MyISAM", Reason.ENGINE_UNSUPPORTED),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", Reason.ENGINE_UNSUPPORTED),
        ("UPDATE t SET v = 1", Reason.LOG_INCOMPLETE),
    ],
)
def test_the_reason_of_a_stop_says_whether_a_resnapshot_cures_it(sql: str, reason: Reason) -> None:
    error = stop(sql)
    assert (error.reason, error.table, bool(error.remedy)) == (reason, "shop.t", True)


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("ALTER TABLE t DROP PRIMARY KEY", "a primary key"),
        ("ALTER TABLE t ENGINE=MyISAM", "engine InnoDB"),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", "without system versioning"),
        ("UPDATE t SET v = 1", "ROW"),
    ],
)
def test_what_is_needed_is_what_the_table_lacks(sql: str, needed: str) -> None:
    assert needed in stop(sql).needed


@pytest.mark.parametrize("sql", ["ALTER TABLE t ADD c INT NULL", "TRUNCATE TABLE t", "DROP TABLE t"])
def test_without_following_every_change_stops_the_table(sql: str) -> None:
    assert stop(sql, FAIL).reason is Reason.SCHEMA_CHANGE_REFUSED
    assert "schemaChange.behavior: fail" in stop(sql, FAIL).needed


def test_without_following_what_is_known_of_a_definition_is_kept_up_to_date() -> None:
    """Else a policy that is changed later would predict from what is no longer true."""
    assert step("ALTER TABLE t DEFAULT CHARSET latin1", FAIL).after.source.charset == "latin1"
    assert step("CREATE UNIQUE INDEX u ON t (v)", FAIL).after.source.unique is None


def test_an_emptied_table_may_stop() -> None:
    assert stop("TRUNCATE TABLE t", FollowPolicy(follow=True, emptied=False)).reason is Reason.TABLE_EMPTIED


def test_an_added_column_that_the_manifest_leaves_out_is_left_out() -> None:
    """Also where it was not there when the table was planned."""
    after = step(
        "ALTER TABLE t ADD secret INT, ADD c INT", FollowPolicy(follow=True, excluded=frozenset({"secret"}))
    ).after
    assert [c.name for c in after.columns] == ["id", "v", "a", "b", "secret", "c"]
    assert [c.name for c in after.captured] == ["id", "v", "a", "b", "c"]


def test_texts_of_added_columns_are_read_as_the_manifest_says() -> None:
    after = step("ALTER TABLE t ADD w TEXT", FollowPolicy(follow=True, replacing=True)).after
    assert [c.type.replaced for c in after.columns if c.name in "vw"] == [True, True]


@pytest.mark.parametrize(
    ("sql", "again"),
    [
        ("ALTER TABLE t ADD c INT DEFAULT 7", True),
        ("ALTER TABLE t DROP v, ADD v VARCHAR(20) DEFAULT 'x'", True),
        ("ALTER TABLE t MODIFY a BIGINT FIRST", True),
        ("TRUNCATE t", True),
        ("ALTER TABLE t RENAME COLUMN v TO w", False),
        ("ALTER TABLE t CHANGE a b INT, CHANGE b a INT", False),
        ("ALTER TABLE t DROP a, RENAME COLUMN b TO a, ADD b INT DEFAULT 0", False),
    ],
)
def test_what_may_be_done_twice_to_a_row(sql: str, again: bool) -> None:
    """A row that a snapshot read after the statement gets it once more."""
    assert repeatable(step(sql)) is again


@pytest.mark.parametrize("gtid", [(None, ""), (Gtid("3e11fa47-71ca-11e1-9e33-c80aa9429562", 7), ""), (None, "0-1-7")])
def test_a_step_comes_back_from_its_line(gtid: tuple[Gtid | None, str]) -> None:
    made = SchemaStep(statement("ALTER TABLE t ADD c INT"), TransactionId(LogOffset("b.000001", 99), *gtid), 5.5)
    assert SchemaStep.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_step_means_the_same_where_it_is_applied(in_doubt: bool) -> None:
    """What is known of the definition is lost where the statement may be on a temporary table."""
    sent = SchemaStep(
        replace(statement("ALTER TABLE t ALTER a SET DEFAULT 5, ADD INDEX k (a)"), in_doubt=in_doubt),
        TransactionId(LogOffset("b.000001", 99)),
    )
    arrived = SchemaStep.from_dict(json.loads(json.dumps(sent.to_dict())))
    assert arrived.statement.in_doubt is in_doubt
    applied = meaning(T, arrived.statement, EVOLVE)
    assert applied == meaning(T, sent.statement, EVOLVE)
    assert isinstance(applied, Followed) is in_doubt
