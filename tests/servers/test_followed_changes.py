"""Schema changes that flow through, on real servers: after each class of statements the copy equals
the source, wherever a run begins or ends; what is not followed stops its table alone."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import Reason
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from support.fixtures import variants
from support.followed_copy import alter, copied_again, copy, last_change, stops, write
from support.schema_classes import CLASSES, IMPLICIT, TIMES, WIDER
from support.stepwise import Stepwise

__all__ = ["copy"]

pytestmark = pytest.mark.server

#: of a table, invisible ones included
COLUMNS = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
AGAIN = "INSERT INTO a (id, v) VALUES (1, 'again'), (300, 'again')"

confirming = variants("mariadb1011", also=("mariadb114", "mysql97_gtid", "mysql97_nogtid"))
servers = variants("mariadb1011", "mysql97_gtid", also=("mariadb114", "mysql97_nogtid"))


def equal(copy: Stepwise) -> None:
    """Both tables, in every row, value, name and order of columns."""
    tables = copy.follow()
    assert {name: str(t.error) for name, t in tables.items() if t.error} == {}
    for name in ("a", "b"):
        assert not copy.difference(name), str(copy.difference(name))
        with copy.server.connect(db=copy.database) as connection, connection.cursor() as cursor:
            cursor.execute(COLUMNS, (copy.database, name))
            names = [column for (column,) in cursor]
        assert copy.targets[name].open_snapshot().schema.names == names


@servers
@pytest.mark.parametrize("name", CLASSES)
def test_the_copy_equals_the_source_after_each_class(copy: Stepwise, name: str) -> None:
    """Writes before and after it are read by one run, which sees rows of both definitions."""
    kind, statements = CLASSES[name]
    write(copy, 10)
    alter(copy, *statements)
    write(copy, 20)
    equal(copy)
    assert last_change(copy).kind is kind
    assert not last_change(copy).unproved


@confirming
def test_rows_prove_what_they_carry_and_nothing_else(copy: Stepwise) -> None:
    """None of them before there is one; what they cannot show is named until the catalog is
    read."""
    for clauses, shown, unseen in (
        ("ADD x INT DEFAULT 5, DEFAULT CHARSET latin1", True, ["the default of x", "the default character set"]),
        ("DEFAULT CHARSET utf8mb4", False, ["the default of x", "the default character set"]),
    ):
        alter(copy, f"ALTER TABLE a {clauses}")
        copy.follow()
        assert last_change(copy).unproved
        write(copy, 10 if shown else 20)
        equal(copy)
        change = last_change(copy)
        assert (change.unproved, change.shown, list(change.unseen)) == (False, shown, unseen)


NO_ROW_CHANGES = (
    "ALTER TABLE a ADD INDEX k (n), ADD CHECK (id > 0)",
    "ALTER TABLE a DROP INDEX k",
    "ALTER TABLE a ENGINE=InnoDB",
    "OPTIMIZE TABLE a",
    "ALTER TABLE a COMMENT 'x', ROW_FORMAT=DYNAMIC",
    "ALTER TABLE a DEFAULT CHARACTER SET latin1",
    "ALTER TABLE a PARTITION BY HASH (id) PARTITIONS 3",
    "ALTER TABLE a COALESCE PARTITION 1",
    "ALTER TABLE a ADD PARTITION PARTITIONS 2",
    "ALTER TABLE a REMOVE PARTITIONING",
    "ALTER TABLE a ORDER BY n",
    "ALTER TABLE a FORCE",
    "CREATE TABLE child (id INT PRIMARY KEY, a INT, CONSTRAINT f FOREIGN KEY (a) REFERENCES a (id))",
    "CREATE TABLE parent (id INT PRIMARY KEY) SELECT DISTINCT n AS id FROM a WHERE n IS NOT NULL",
    "ALTER TABLE a ADD CONSTRAINT g FOREIGN KEY (n) REFERENCES parent (id)",
    "ALTER TABLE a DROP FOREIGN KEY g",
    "ALTER TABLE a COLLATE utf8mb4_bin",
    "CREATE TEMPORARY TABLE a (id INT PRIMARY KEY, other INT)",
)


@confirming
def test_statements_that_change_no_row(copy: Stepwise) -> None:
    """One after the other, with writes between: indexes, storage, partitions, a temporary table."""
    for number, statement in enumerate(NO_ROW_CHANGES):
        alter(copy, statement)
        write(copy, 10 * (number + 1))
    equal(copy)


UTF8_CLIENT = ("SET NAMES utf8mb4", "SET character_set_connection = latin1")
#: it sends the two bytes of é in UTF-8
LATIN1_CLIENT = ("SET NAMES latin1", "SET character_set_connection = utf8mb4")
#: session, an added column, and whether it is followed
TEXTS = (
    (UTF8_CLIENT, "VARCHAR(9) DEFAULT 'é'", True),
    (UTF8_CLIENT, "VARCHAR(9) DEFAULT _utf8mb4'é'", True),
    (UTF8_CLIENT, "VARCHAR(9) DEFAULT _latin1'é'", False),
    (UTF8_CLIENT, "VARCHAR(9) DEFAULT _latin1'e' 'é'", False),
    (LATIN1_CLIENT, "VARCHAR(9) DEFAULT _latin1'e'", True),
    (LATIN1_CLIENT, "VARCHAR(9) DEFAULT _latin1'e' 'é'", False),
    (LATIN1_CLIENT, "VARCHAR(9) DEFAULT _utf8mb4'é'", False),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET latin1 DEFAULT x'4142'", True),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET ucs2 DEFAULT 'AB'", True),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET ucs2 DEFAULT n'AB'", True),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET ucs2 DEFAULT 5", True),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET ucs2 DEFAULT x'4142'", False),
    (UTF8_CLIENT, "CHAR(9) CHARACTER SET utf16 DEFAULT 0x4142", False),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET utf16le DEFAULT b'100000101000010'", False),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET utf32 DEFAULT x'00004142'", False),
    (UTF8_CLIENT, "VARCHAR(9) CHARACTER SET swe7 DEFAULT x'5b'", False),
)


@variants("mariadb1011", "mysql97_gtid", also=("mariadb114", "mysql97_nogtid"))
def test_texts_and_bytes_are_read_in_the_set_that_the_server_reads_them_in(copy: Stepwise) -> None:
    """A text behind a character set's name is not converted from the client's set; neither are the
    bytes of hexadecimal and binary digits from ASCII."""
    tables = {f"c{number}": case for number, case in enumerate(TEXTS)}
    for table in tables:
        alter(copy, f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
        copy.snapshot(table)
    for table, (session, column, _) in tables.items():
        alter(copy, *session, f"ALTER TABLE {table} ADD x {column}")
    followed = {name: found.error is None for name, found in copy.follow().items()}
    assert followed == dict.fromkeys("ab", True) | {name: case[2] for name, case in tables.items()}
    assert [str(copy.difference(name)) for name in tables if followed[name] and copy.difference(name)] == []


@servers
@pytest.mark.parametrize("name", ["add-default", "drop-and-add", "rename", "truncate", "nothing"])
def test_a_run_may_begin_anywhere(copy: Stepwise, name: str) -> None:
    """A run that ends before the statement, one that ends right after it, and one after that."""
    write(copy, 10)
    copy.follow()
    alter(copy, *CLASSES[name].statements)
    copy.follow()
    write(copy, 20)
    equal(copy)
    write(copy, 30)
    equal(copy)
    assert not last_change(copy).unproved


@servers
def test_a_table_ahead_skips_its_rows_and_its_step(copy: Stepwise) -> None:
    """R5: the reader begins where another table is behind."""
    behind = copy.targets.pop("b")
    write(copy, 10)
    alter(copy, "ALTER TABLE a DROP v", "ALTER TABLE a ADD v VARCHAR(40) DEFAULT 'new' FIRST")
    copy.follow()
    before = copy.targets["a"].last_commit()
    copy.targets["b"] = behind
    tables = copy.follow()
    assert {name: t.error for name, t in tables.items()} == {"a": None, "b": None}
    assert copy.targets["a"].last_commit() == before
    write(copy, 20)
    equal(copy)


@servers
@pytest.mark.parametrize(
    ("statements", "reasons"),
    [
        (["DROP TABLE a, b"], {"a": Reason.TABLE_GONE, "b": Reason.TABLE_GONE}),
        (["RENAME TABLE a TO z"], {"a": Reason.TABLE_GONE}),
        (["ALTER TABLE a RENAME z"], {"a": Reason.TABLE_GONE}),
        (["RENAME TABLE a TO z, b TO a, z TO b"], dict.fromkeys("ab", Reason.SCHEMA_CHANGE_REFUSED)),
        (["ALTER TABLE a DROP PRIMARY KEY"], {"a": Reason.NO_PRIMARY_KEY}),
        (["ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)"], {"a": Reason.SCHEMA_CHANGE_REFUSED}),
        (["ALTER TABLE a MODIFY d DECIMAL(10,1)"], {"a": Reason.SCHEMA_CHANGE_REFUSED}),
        (["ALTER TABLE a ADD g INT AS (n + 1) STORED"], {"a": Reason.SCHEMA_CHANGE_REFUSED}),
        (["CREATE TABLE z AS SELECT id FROM a", "TRUNCATE b"], {}),
    ],
)
def test_what_is_not_followed_stops_its_table(
    copy: Stepwise, statements: list[str], reasons: dict[str, Reason]
) -> None:
    """The reason says whether a resnapshot fixes it; rows before the statement are there."""
    alter(copy, "UPDATE a SET n = NULL WHERE id = 2", "DELETE FROM a WHERE id = 1", "UPDATE a SET n = 1")
    alter(copy, *statements)
    stops(copy, **reasons)
    rows = copy.targets["a"].open_snapshot().scan(["id", "n"]).read_all().to_pydict()
    assert sorted(zip(*rows.values(), strict=True)) == [(2, 1), (3, 1)]


@servers
@pytest.mark.parametrize("ghost", ["gh-ost", "pt-osc"])
def test_an_online_schema_changer_stops_nothing_before_its_swap(copy: Stepwise, ghost: str) -> None:
    """Then the rows are another table's: a resnapshot."""
    new, old = ("_a_gho", "_a_del") if ghost == "gh-ost" else ("_a_new", "_a_old")
    make = {
        "gh-ost": ["CREATE TABLE _a_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64))"],
        "pt-osc": [
            f"CREATE TRIGGER pt_{n} AFTER {n} ON a FOR EACH ROW DELETE FROM b WHERE id = 99" for n in ("DELETE",)
        ],
    }[ghost]
    alter(copy, f"CREATE TABLE {new} LIKE a", *make, f"ALTER TABLE {new} ADD x INT DEFAULT 3")
    alter(copy, f"INSERT INTO {new} SELECT *, 3 FROM a")
    write(copy, 10)
    equal(copy)
    alter(copy, f"RENAME TABLE a TO {old}, {new} TO a")
    write(copy, 20)
    stops(copy, a=Reason.SCHEMA_CHANGE_REFUSED)


@servers
def test_a_prediction_that_rows_contradict_is_never_used(copy: Stepwise) -> None:
    """The definition was changed where the binlog does not show it: the first rows after the next
    step do."""
    alter(copy, "SET sql_log_bin = 0", "ALTER TABLE a MODIFY v VARCHAR(50)")
    alter(copy, "ALTER TABLE a ADD x INT DEFAULT 5")
    assert copy.follow()["a"].error is None
    assert last_change(copy).unproved
    before = copy.targets["a"].last_commit()
    write(copy, 10)
    stops(copy, a=Reason.SCHEMA_CHANGE_REFUSED)
    assert copy.targets["a"].last_commit() == before


@servers
def test_steps_among_the_changes_that_a_snapshot_may_have(copy: Stepwise) -> None:
    """Between LOW and HIGH, with splits that were read before and after a statement that leaves the
    definition equal."""
    alter(copy, "INSERT INTO a (id, v) SELECT seq, seq FROM (SELECT 100 seq UNION SELECT 200 UNION SELECT 300) s")
    copy.chunk_size = 2
    changes = {
        0: ["ALTER TABLE a DROP v, ADD v VARCHAR(40) DEFAULT 'new' AFTER id"],
        1: ["UPDATE a SET v = 'later' WHERE id IN (2, 200)"],
    }
    copied_again(copy, lambda split: alter(copy, *changes.get(split, [])))
    equal(copy)
    copied_again(copy, lambda split: alter(copy, *(["TRUNCATE a", AGAIN] if split == 1 else [])))
    equal(copy)


@servers
def test_values_that_change_places_among_them_are_not_followed(copy: Stepwise) -> None:
    """A row that was read after the statement would get it once more."""
    copy.chunk_size = 1
    alter(copy, "ALTER TABLE a ADD m INT AFTER n")
    swap = "ALTER TABLE a CHANGE n m INT AFTER n, CHANGE m n INT AFTER v"
    copied_again(copy, lambda split: alter(copy, *([swap] if split == 0 else [])))
    stops(copy, a=Reason.SCHEMA_CHANGE_REFUSED)


@pytest.mark.parametrize("variant", ["mariadb1011", "mariadb114"])
def test_an_alter_in_two_phases(copy: Stepwise) -> None:
    """It counts where it is committed; one that failed is none."""
    two = "SET binlog_alter_two_phase = 1"
    alter(copy, "UPDATE a SET n = 3")
    with pytest.raises(Exception, match="Duplicate"):
        alter(copy, two, "ALTER TABLE a ADD x INT DEFAULT 7, ADD UNIQUE (n)")
    write(copy, 10)
    alter(copy, two, "ALTER TABLE a ADD x INT DEFAULT 7")
    write(copy, 20)
    equal(copy)
    assert last_change(copy).version == 1


@servers
def test_dropped_columns_are_kept(copy: Stepwise) -> None:
    """They keep the values that they had, and are NULL in all that is written later; a name that
    comes back brings no value back."""
    copy.policy = FollowPolicy(follow=True)
    alter(copy, "ALTER TABLE a DROP v", "INSERT INTO a (id) VALUES (10)")
    copy.follow()
    rows = copy.targets["a"].open_snapshot().scan(["id", "v"]).read_all().to_pydict()
    assert dict(zip(*rows.values(), strict=True)) == {1: None, 2: "", 3: "wörld", 10: None}
    alter(copy, "ALTER TABLE a ADD v VARCHAR(40)")
    assert not copy.follow()["a"].error
    assert not copy.difference("a")


@servers
def test_an_added_column_that_is_left_out(copy: Stepwise) -> None:
    copy.policy = FollowPolicy(follow=True, excluded=frozenset({"secret"}))
    alter(copy, "ALTER TABLE a ADD secret INT DEFAULT 1 AFTER id")
    write(copy, 10)
    assert not copy.follow()["a"].error
    assert not copy.difference("a")
    assert "secret" not in copy.targets["a"].open_snapshot().schema.names


DEFAULTS = (
    "ALTER TABLE a ADD x INT NOT NULL DEFAULT -42, ADD y CHAR(9) DEFAULT 'a''b \\\\ c' FIRST, ADD z DECIMAL(9,3) DEFAULT 1.5,"
    " ADD u BIGINT UNSIGNED DEFAULT 18446744073709551615, ADD o DOUBLE DEFAULT 9007199254740992, ADD g FLOAT DEFAULT -3,"
    " ADD p BINARY(4) DEFAULT 'ab', ADD q VARBINARY(9) DEFAULT 'cd', ADD en ENUM('m','n') DEFAULT 'n',"
    " ADD se SET('k','l') DEFAULT 'k,l', ADD da DATE DEFAULT '2024-02-29', ADD dti DATETIME(3) DEFAULT '2024-02-29 01:02:03',"
    " ADD ti TIME(2) DEFAULT '01:02:03', ADD ye YEAR DEFAULT 2024, ADD bo BOOLEAN NOT NULL DEFAULT TRUE,"
    " ADD nu VARCHAR(5) DEFAULT NULL, ADD em VARCHAR(5) NOT NULL DEFAULT ''"
)


HIDDEN_DEFAULT = "ALTER TABLE a ALTER x SET DEFAULT 43"
HIDDEN_FACTS = "ALTER TABLE a MODIFY id INT AUTO_INCREMENT"


@confirming
@pytest.mark.parametrize(
    "statements",
    [(DEFAULTS,), (IMPLICIT,), ("SET time_zone = '+05:30'", TIMES), (WIDER,), CLASSES["charset"].statements],
)
def test_the_catalog_confirms_what_was_predicted(copy: Stepwise, statements: tuple[str, ...]) -> None:
    """It does so though no row came since; a later run does not ask again."""
    copy.confirm = lambda: None
    alter(copy, *statements)
    equal(copy)
    assert not last_change(copy).unconfirmed
    assert last_change(copy).defaults == ()


@confirming
@pytest.mark.parametrize("hidden", [HIDDEN_DEFAULT, HIDDEN_FACTS])
def test_a_default_that_the_server_has_not_stops_the_table(copy: Stepwise, hidden: str) -> None:
    """No row could tell."""
    copy.confirm = lambda: None
    alter(copy, "ALTER TABLE a ADD x INT NOT NULL DEFAULT 42", "SET sql_log_bin = 0", hidden)
    stops(copy, a=Reason.SCHEMA_CHANGE_REFUSED)
    assert last_change(copy).unconfirmed


@confirming
@pytest.mark.parametrize(
    "later", ["ALTER TABLE a ALTER x SET DEFAULT 9", "ALTER TABLE a ADD y INT DEFAULT 7", "ALTER TABLE a DROP x"]
)
def test_a_statement_after_the_step_is_no_contradiction(copy: Stepwise, later: str) -> None:
    """Whether it comes before the catalog is read, or after that."""
    copy.confirm = lambda: None
    alter(copy, "ALTER TABLE a ADD x INT NOT NULL DEFAULT 42", later)
    equal(copy)
    assert not last_change(copy).unconfirmed
    alter(copy, "ALTER TABLE a ADD k INT NOT NULL DEFAULT 42")
    copy.confirm = lambda: alter(copy, "ALTER TABLE a ALTER k SET DEFAULT 1")
    equal(copy)
    copy.confirm = lambda: None
    equal(copy)
    assert not last_change(copy).unconfirmed
