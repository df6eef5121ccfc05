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


class Class(NamedTuple):
    """Statements, the last of which is not followed, and the flavors that take and log it."""

    statements: tuple[str, ...]
    flavors: tuple[str, ...] = EVERY
    reason: Reason = Reason.SCHEMA_CHANGE_REFUSED


CLASSES = {
    #: MariaDB fills in what its own CHECK refuses in the next row
    "json": Class((LOOSE, "ALTER TABLE a ADD j JSON NOT NULL"), ("mysql",)),
    "point": Class((LOOSE, "ALTER TABLE a ADD po POINT NOT NULL"), ("mariadb",)),
    "uuid-default": Class(("ALTER TABLE a ADD u VARCHAR(36) DEFAULT (UUID())",), ("mariadb",)),
    "expression-default": Class(("ALTER TABLE a ADD x INT DEFAULT (1 + 1)",)),
    "rounded-default": Class(("ALTER TABLE a ADD x DECIMAL(5,1) DEFAULT 1.25, ADD y INT DEFAULT '007'",)),
    "instant-default": Class(("SET time_zone = '+05:30'", "ALTER TABLE a ADD x TIMESTAMP DEFAULT '2024-01-02 03:04:05'")),
    "bit-default": Class(("ALTER TABLE a ADD x BIT(3) DEFAULT b'101', ADD y VARBINARY(4) DEFAULT x'00ff'",)),
    "auto-increment": Class(("ALTER TABLE a ADD x INT AUTO_INCREMENT UNIQUE",)),
    "narrower": Class((LOOSE, "ALTER TABLE a MODIFY n SMALLINT")),
    "unsigned": Class((LOOSE, "ALTER TABLE a MODIFY n INT UNSIGNED")),
    "number-to-text": Class(("ALTER TABLE a MODIFY n VARCHAR(20)",)),
    "number-to-decimal": Class(("ALTER TABLE a MODIFY n DECIMAL(12,2)",)),
    "float-to-text": Class(("ALTER TABLE a MODIFY f VARCHAR(30)",)),
    "text-to-char": Class(("ALTER TABLE a MODIFY v CHAR(40)",)),
    "shorter": Class((LOOSE, "ALTER TABLE a MODIFY v VARCHAR(2)")),
    "text-to-number": Class((LOOSE, "ALTER TABLE a MODIFY v INT")),
    "rounded": Class(("ALTER TABLE a MODIFY d DECIMAL(10,1)",)),
    "fewer-digits": Class(("ALTER TABLE a MODIFY dt DATETIME(6)", "UPDATE a SET dt = '2024-01-02 03:04:05.987654'",
                           "ALTER TABLE a MODIFY dt DATETIME")),
    "datetime-to-date": Class((LOOSE, "ALTER TABLE a MODIFY dt DATE")),
    "datetime-to-timestamp": Class((LOOSE, "SET time_zone = '+05:30'", "ALTER TABLE a MODIFY dt TIMESTAMP NULL")),
    "charset-narrower": Class((LOOSE, "ALTER TABLE a MODIFY v VARCHAR(40) CHARACTER SET ascii")),
    "binary-to-text": Class(("UPDATE a SET bi = 'ab'", "ALTER TABLE a MODIFY bi VARCHAR(9)")),
    "member-renamed": Class((LOOSE, "ALTER TABLE a MODIFY e ENUM('x','other')")),
    "enum-to-text": Class(("ALTER TABLE a MODIFY e VARCHAR(9)",)),
    "bit-wider": Class(("ALTER TABLE a MODIFY bt BIT(9)",)),
    "not-null-loose": Class((LOOSE, "ALTER TABLE a MODIFY v VARCHAR(40) NOT NULL")),
    "key": Class(("UPDATE a SET n = id", LOOSE, "ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)")),
    "drop-create": Class(("DROP TABLE a", "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))"), EVERY, Reason.TABLE_GONE),
    "create-or-replace": Class(("CREATE OR REPLACE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))",), ("mariadb",)),
    "drop-partition": Class((RANGES, "ALTER TABLE a DROP PARTITION p")),
    "truncate-partition": Class((RANGES, "ALTER TABLE a TRUNCATE PARTITION p")),
    "exchange-partition": Class(("CREATE TABLE z LIKE a", "INSERT INTO z (id) VALUES (2)", RANGES,
                                 "ALTER TABLE a EXCHANGE PARTITION p WITH TABLE z")),
    "convert-partition": Class((RANGES, "ALTER TABLE a CONVERT PARTITION p TO TABLE z"), ("mariadb",)),
    "ignore-unique": Class(("UPDATE a SET n = 1", "ALTER IGNORE TABLE a ADD UNIQUE (n)"), ("mariadb",)),
    "text-to-uuid": Class(("UPDATE a SET v = '00112233-4455-6677-8899-aabbccddeeff'", "ALTER TABLE a MODIFY v UUID"),
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
