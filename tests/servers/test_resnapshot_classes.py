"""Schema changes that are not followed, on real servers: each stops its table alone, by a reason
that a resnapshot clears, and after the resnapshot the copy equals the source and flows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from cdcsync_core.errors import Reason
from support.fixtures import variants
from support.followed_copy import alter, copied_again, copy, stops
from support.stepwise import Stepwise

__all__ = ["copy"]

pytestmark = pytest.mark.server

EVERY = ("mariadb", "mysql")
RANGES = (
    "ALTER TABLE a PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (3), PARTITION q VALUES LESS THAN MAXVALUE)"
)
LOOSE = "SET sql_mode = ''"


class ResnapshotClass(NamedTuple):
    """Statements, the last of which is not followed, and the flavors that take and log it."""

    statements: tuple[str, ...]
    flavors: tuple[str, ...] = EVERY
    reason: Reason = Reason.SCHEMA_CHANGE_REFUSED


CLASSES = {
    #: MariaDB fills in what its own CHECK refuses in the next row
    "json": ResnapshotClass((LOOSE, "ALTER TABLE a ADD j JSON NOT NULL"), ("mysql",)),
    "point": ResnapshotClass((LOOSE, "ALTER TABLE a ADD po POINT NOT NULL"), ("mariadb",)),
    "uuid-default": ResnapshotClass(("ALTER TABLE a ADD u VARCHAR(36) DEFAULT (UUID())",), ("mariadb",)),
    "expression-default": ResnapshotClass(("ALTER TABLE a ADD x INT DEFAULT (1 + 1)",)),
    "rounded-default": ResnapshotClass(("ALTER TABLE a ADD x DECIMAL(5,1) DEFAULT 1.25, ADD y INT DEFAULT '007'",)),
    "instant-default": ResnapshotClass(("SET time_zone = '+05:30'", "ALTER TABLE a ADD x TIMESTAMP DEFAULT '2024-01-02 03:04:05'")),
    "bit-default": ResnapshotClass(("ALTER TABLE a ADD x BIT(3) DEFAULT b'101', ADD y VARBINARY(4) DEFAULT x'00ff'",)),
    "auto-increment": ResnapshotClass(("ALTER TABLE a ADD x INT AUTO_INCREMENT UNIQUE",)),
    "narrower": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY n SMALLINT")),
    "unsigned": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY n INT UNSIGNED")),
    "number-to-text": ResnapshotClass(("ALTER TABLE a MODIFY n VARCHAR(20)",)),
    "number-to-decimal": ResnapshotClass(("ALTER TABLE a MODIFY n DECIMAL(12,2)",)),
    "float-to-text": ResnapshotClass(("ALTER TABLE a MODIFY f VARCHAR(30)",)),
    "text-to-char": ResnapshotClass(("ALTER TABLE a MODIFY v CHAR(40)",)),
    "shorter": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY v VARCHAR(2)")),
    "text-to-number": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY v INT")),
    "rounded": ResnapshotClass(("ALTER TABLE a MODIFY d DECIMAL(10,1)",)),
    "fewer-digits": ResnapshotClass(("ALTER TABLE a MODIFY dt DATETIME(6)", "UPDATE a SET dt = '2024-01-02 03:04:05.987654'",
                           "ALTER TABLE a MODIFY dt DATETIME")),
    "datetime-to-date": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY dt DATE")),
    "datetime-to-timestamp": ResnapshotClass((LOOSE, "SET time_zone = '+05:30'", "ALTER TABLE a MODIFY dt TIMESTAMP NULL")),
    "charset-narrower": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY v VARCHAR(40) CHARACTER SET ascii")),
    "binary-to-text": ResnapshotClass(("UPDATE a SET bi = 'ab'", "ALTER TABLE a MODIFY bi VARCHAR(9)")),
    "member-renamed": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY e ENUM('x','other')")),
    "enum-to-text": ResnapshotClass(("ALTER TABLE a MODIFY e VARCHAR(9)",)),
    "bit-wider": ResnapshotClass(("ALTER TABLE a MODIFY bt BIT(9)",)),
    "not-null-loose": ResnapshotClass((LOOSE, "ALTER TABLE a MODIFY v VARCHAR(40) NOT NULL")),
    "key": ResnapshotClass(("UPDATE a SET n = id", LOOSE, "ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)")),
    "drop-create": ResnapshotClass(("DROP TABLE a", "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))"), EVERY, Reason.TABLE_GONE),
    "create-or-replace": ResnapshotClass(("CREATE OR REPLACE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))",), ("mariadb",)),
    "drop-partition": ResnapshotClass((RANGES, "ALTER TABLE a DROP PARTITION p")),
    "truncate-partition": ResnapshotClass((RANGES, "ALTER TABLE a TRUNCATE PARTITION p")),
    "exchange-partition": ResnapshotClass(("CREATE TABLE z LIKE a", "INSERT INTO z (id) VALUES (2)", RANGES,
                                 "ALTER TABLE a EXCHANGE PARTITION p WITH TABLE z")),
    "convert-partition": ResnapshotClass((RANGES, "ALTER TABLE a CONVERT PARTITION p TO TABLE z"), ("mariadb",)),
    "ignore-unique": ResnapshotClass(("UPDATE a SET n = 1", "ALTER IGNORE TABLE a ADD UNIQUE (n)"), ("mariadb",)),
    "text-to-uuid": ResnapshotClass(("UPDATE a SET v = '00112233-4455-6677-8899-aabbccddeeff'", "ALTER TABLE a MODIFY v UUID"),
                          ("mariadb",)),
}  # fmt: skip


@variants("mariadb1011", also=("mariadb114", "mysql97_gtid", "mysql97_nogtid"))
@pytest.mark.parametrize("name", CLASSES)
def test_the_copy_equals_the_source_after_the_resnapshot(copy: Stepwise, name: str) -> None:
    """Rows are written before and after the statement, and other tables flow."""
    statements, flavors, reason = CLASSES[name]
    if copy.server.flavor not in flavors:
        pytest.skip(f"{copy.server.flavor} refuses the statement, or has none like it")
    alter(copy, LOOSE, "INSERT INTO a (id, v) VALUES (10, '12'), (11, NULL)", "UPDATE b SET v = 'before'")
    alter(copy, *statements)
    stops(copy, a=reason)
    assert not copy.difference("b")
    copied_again(copy, lambda _: None)
    alter(copy, LOOSE, "INSERT IGNORE INTO a (id) VALUES (40)", "DELETE FROM a WHERE id = 3", "UPDATE b SET v = 'x'")
    tables = copy.follow()
    assert {name: t.error for name, t in tables.items() if t.error} == {}
    for table in ("a", "b"):
        assert not copy.difference(table), str(copy.difference(table))
