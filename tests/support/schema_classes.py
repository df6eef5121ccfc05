"""A table of most types, and statements of each class of changes of its definition that is
followed."""

from __future__ import annotations

from typing import NamedTuple

from cdcsync_core.tables.schema_change import Kind

TABLES = (
    (
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40), n INT, d DECIMAL(10,3), t TIME, e ENUM('x','y'), s SET('p','q'),"
        " tx VARCHAR(30) CHARACTER SET latin1, dt DATETIME, f FLOAT, bt BIT(4), bi VARBINARY(9)) DEFAULT CHARSET utf8mb4"
    ),
    "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(40))",
    (
        "INSERT INTO a VALUES (1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),"
        "(2,'','-2147483648','-9999999.999','-838:59:59','x','',_latin1 x'e9','1000-01-01 00:00:00',-3.4e38,b'0',''),"
        "(3,'wörld','2147483647','9999999.999','838:59:59','y','p,q','x','9999-12-31 23:59:59',3.4e38,b'1111',x'00ff')"
    ),
    "INSERT INTO b VALUES (1,'one')",
)
#: rows that are changed, inserted and deleted, of any definition: without names of columns
WRITES = (
    "SET sql_mode = ''",
    "INSERT INTO a (id) VALUES ({0}), ({0} + 1)",
    "DELETE FROM a WHERE id = {0}",
    "UPDATE b SET v = '{0}'",
)


class SchemaClass(NamedTuple):
    """A row of the facts: statements, and what the last of them is taken for."""

    kind: Kind
    statements: tuple[str, ...]


IMPLICIT = (
    "ALTER TABLE a ADD i INT NOT NULL, ADD c CHAR(3) NOT NULL, ADD de DECIMAL(8,2) NOT NULL,"
    " ADD bb BINARY(3) NOT NULL, ADD en ENUM('m','n') NOT NULL, ADD ti TIME NOT NULL, ADD dd DOUBLE NOT NULL,"
    " ADD b2 BIT(9) NOT NULL"
)
TIMES = (
    "ALTER TABLE a ADD at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),"
    " ADD ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP"
)
WIDER = "ALTER TABLE a MODIFY n BIGINT, MODIFY d DECIMAL(20,5), MODIFY t TIME(3), MODIFY dt DATETIME(6)"
WIDER_OTHERS = "ALTER TABLE a MODIFY COLUMN f DOUBLE, MODIFY BT BIT(7), MODIFY dd DATETIME(3)"
LITERALS = (
    "ALTER TABLE a ADD x1 INT DEFAULT '0', ADD x2 DECIMAL(9,2) NOT NULL DEFAULT '0.00', ADD x3 DOUBLE DEFAULT 0.1,"
    " ADD x4 VARCHAR(9) DEFAULT 'é€' COLLATE utf8mb4_bin, ADD x5 INT2 DEFAULT (5), ADD x6 INT8 DEFAULT 1.0,"
    " ADD x7 BIT(9) DEFAULT b'101', ADD x8 FLOAT NOT NULL DEFAULT 1.1, ADD x9 DATETIME DEFAULT '2020-01-01',"
    " ADD x10 CHARACTER VARYING(5) CHARACTER SET 'latin1' DEFAULT 'é', ADD x11 VARBINARY(4) DEFAULT x'4142', ADD x12 LONG"
)
NOT_NULL = "ALTER TABLE a MODIFY v VARCHAR(40) NOT NULL DEFAULT ''"
CLASSES = {
    "add": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a ADD x INT",)),
    "add-default": SchemaClass(
        Kind.FILL, ("ALTER TABLE a ADD x INT NOT NULL DEFAULT 42, ADD y CHAR(9) DEFAULT 'a''b' FIRST",)
    ),
    "add-implicit": SchemaClass(Kind.FILL, (IMPLICIT,)),
    "add-blank": SchemaClass(Kind.FILL, ("ALTER TABLE a ADD x CHAR(5) DEFAULT 'a  '",)),
    "add-invisible": SchemaClass(Kind.FILL, ("ALTER TABLE a ADD x INT INVISIBLE DEFAULT 3",)),
    "add-time": SchemaClass(Kind.FILL, ("SET time_zone = '+05:30'", TIMES)),
    "drop": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a DROP v, DROP dt",)),
    "drop-and-add": SchemaClass(Kind.FILL, ("ALTER TABLE a DROP v", "ALTER TABLE a ADD v VARCHAR(40) DEFAULT 'new'")),
    "drop-add-at-once": SchemaClass(Kind.FILL, ("ALTER TABLE a DROP v, ADD v VARCHAR(40) DEFAULT 'new' AFTER id",)),
    "rename": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a CHANGE v w VARCHAR(40)",)),
    "swap-names": SchemaClass(
        Kind.RESHAPE, ("ALTER TABLE a ADD m INT", "ALTER TABLE a CHANGE n m INT, CHANGE m n INT")
    ),
    "reorder": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a MODIFY n INT FIRST, MODIFY e ENUM('x','y') AFTER id",)),
    "widen": SchemaClass(Kind.RESHAPE, (WIDER,)),
    "widen-others": SchemaClass(
        Kind.RESHAPE, ("ALTER TABLE a ADD dd DATE", "UPDATE a SET dd = '2024-02-29' WHERE id > 1", WIDER_OTHERS)
    ),
    "literals": SchemaClass(Kind.FILL, (LITERALS,)),
    "indexes": SchemaClass(
        Kind.RESHAPE, ("ALTER TABLE a ADD (x INT UNIQUE, y INT, INDEX (y)), ADD z INT REFERENCES b (id)",)
    ),
    "widen-key": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a MODIFY id BIGINT",)),
    "members": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a MODIFY e ENUM('z','y','x'), MODIFY s SET('p','q','r')",)),
    "charset": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a MODIFY tx VARCHAR(30) CHARACTER SET utf8mb4",)),
    "charset-of-the-table": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a MODIFY tx VARCHAR(30)",)),
    "convert": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a CONVERT TO CHARACTER SET utf8mb4",)),
    "longer": SchemaClass(Kind.RESHAPE, ("ALTER TABLE a MODIFY v VARCHAR(300)",)),
    "truncate": SchemaClass(Kind.EMPTY, ("TRUNCATE TABLE a",)),
    "nothing": SchemaClass(
        Kind.NOTHING, ("SET sql_mode = 'STRICT_ALL_TABLES'", "DELETE FROM a WHERE v IS NULL", NOT_NULL)
    ),
    "ansi-quotes": SchemaClass(Kind.FILL, ("SET sql_mode = 'ANSI_QUOTES'", 'ALTER TABLE "a" ADD "x y" INT DEFAULT 5')),
    "conditional": SchemaClass(Kind.FILL, ("ALTER TABLE a /*!50000 ADD x INT DEFAULT 5 */ /* , DROP v */",)),
}
