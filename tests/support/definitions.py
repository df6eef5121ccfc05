"""Statements that are run on a table `t` of a real server, and whether each may leave a captured
copy as it is.

`nothing` was measured: rows, columns and key are the same before and after. The others change
something, or are not followed.
"""

from __future__ import annotations

from dataclasses import dataclass

_COLUMNS = """id INT NOT NULL, i INT, n INT NOT NULL, v VARCHAR(10), s CHAR(5), l VARCHAR(20) CHARACTER SET latin1,
 d DECIMAL(10,3), f FLOAT, db DOUBLE, dt DATETIME, ts TIMESTAMP NULL, e ENUM('a','b','c'), st SET('x','y','z'), b VARBINARY(10),
 tx TEXT, bi BIT(4), tm TIME, y YEAR, dd DATE, dt6 DATETIME(6), vi VARCHAR(10)"""
_ROWS = (
    (
        "(1,5,1,'12','ab','é','1.235',1.1,0.1,'2024-01-02 03:04:05','2024-07-01 12:00:00','b','x,z',x'00ff','hello',b'101',"
        "'-12:30:00',2024,'2024-02-29','2024-01-01 00:00:00.987654','7')"
    ),
    (
        "(2,-7,2,'x1','','z','-0.005',16777216,1e30,'2024-06-02 03:04:05','2024-10-27 00:30:00','a','',x'41','wörld',b'0',"
        "'838:00:00',1901,'1000-01-01','2024-12-31 23:59:59.500000','-3')"
    ),
    "(3,NULL,3" + ",NULL" * 18 + ")",
    (
        "(4,2147483647,4,'0123456789','abcde','abc','9999999.999',-0.5,-0.5,'9999-12-31 23:59:59','2024-10-27 01:30:00','c','x,y,z',"
        "x'','big',b'1111','00:00:00',2155,'9999-12-31','1970-01-01 00:00:00.000001','40')"
    ),
)
TABLE = (
    f"CREATE TABLE t ({_COLUMNS}, PRIMARY KEY (id), UNIQUE KEY u (n), KEY kv (v)) DEFAULT CHARSET utf8mb4",
    *(f"INSERT INTO t VALUES {row}" for row in _ROWS),
)
#: without a primary key: rows are identified by `u`
UNIQUE = (TABLE[0].replace("PRIMARY KEY (id), UNIQUE KEY u (n)", "UNIQUE KEY u (id), UNIQUE KEY w (n, id)"), *TABLE[1:])
#: keys of two columns
COMPOSITE = tuple(
    (
        f"CREATE TABLE t (id INT NOT NULL, a INT NOT NULL, b INT NOT NULL, {key})",
        "INSERT INTO t VALUES (1,1,1), (2,2,2)",
    )
    for key in ("UNIQUE KEY uk (id, a)", "PRIMARY KEY (a, id)", "PRIMARY KEY (id, a), UNIQUE KEY uk (b)")
)
#: no NULL in any column
FULL = (TABLE[0], *(statement for statement in TABLE[1:] if ",NULL" not in statement))
PARTITIONED = (
    (
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v VARCHAR(10)) PARTITION BY RANGE(id) (PARTITION p0 VALUES LESS THAN (3),"
        " PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN (30))"
    ),
    "INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d'),(20,'z')",
)
HASHED = (
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v VARCHAR(10)) PARTITION BY HASH(id) PARTITIONS 4",
    PARTITIONED[1],
)
#: besides `t`
OTHERS = (
    "CREATE TABLE p (id INT PRIMARY KEY)",
    "INSERT INTO p VALUES (-7), (5), (2147483647)",
    "CREATE TABLE o (id INT PRIMARY KEY, t INT)",
)

STRICT, LAX = "SET sql_mode = 'STRICT_ALL_TABLES'", "SET sql_mode = ''"
TRANS = "SET sql_mode = 'STRICT_TRANS_TABLES'"
A = "ALTER TABLE t "


@dataclass(frozen=True)
class DefinitionCase:
    """`run` on `table`, after `before` in the same session; `flavor` is empty for both."""

    run: tuple[str, ...]
    nothing: bool
    flavor: str = ""
    before: tuple[str, ...] = (STRICT,)
    table: tuple[str, ...] = TABLE

    def __str__(self) -> str:
        shown = "; ".join(self.run)
        return shown.replace("ALTER TABLE t ", "")[:90] + ("" if STRICT in self.before else " (lax)")


def nothing(
    *run: str, flavor: str = "", before: tuple[str, ...] = (STRICT,), table: tuple[str, ...] = TABLE
) -> DefinitionCase:
    return DefinitionCase(run, True, flavor, before, table)


def change(
    *run: str, flavor: str = "", before: tuple[str, ...] = (STRICT,), table: tuple[str, ...] = TABLE
) -> DefinitionCase:
    return DefinitionCase(run, False, flavor, before, table)


_MARIADB, _MYSQL = "mariadb", "mysql"

NOTHING = [
    # other tables, and this one's name elsewhere
    nothing("CREATE TABLE `_t_gho` LIKE `t`"),
    nothing("create /* gh-ost */ table `_t_gho` like `t`", "alter /* gh-ost */ table `_t_gho` add x int default 3"),
    nothing("CREATE TABLE _t_new (id INT NOT NULL PRIMARY KEY, t INT, KEY t (t), CONSTRAINT t2 CHECK (id > 0))",
            "ALTER TABLE _t_new ADD COLUMN y INT COMMENT 't', RENAME COLUMN t TO u, RENAME INDEX t TO u"),
    nothing("CREATE TABLE u (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)"),
    nothing("ALTER TABLE o ADD CONSTRAINT t FOREIGN KEY (t) REFERENCES t (id) ON DELETE SET NULL ON UPDATE CASCADE"),
    nothing("ALTER TABLE o ADD COLUMN t3 VARCHAR(20) DEFAULT 't' COMMENT 'of `t`', ADD KEY t (t)", "ALTER TABLE o DROP COLUMN t"),
    nothing("ALTER TABLE o RENAME TO o2", "RENAME TABLE o2 TO o", "DROP TABLE o"),
    nothing("CREATE TABLE u LIKE t", "DROP TABLE u"),
    nothing("CREATE TABLE u AS SELECT id, v FROM t"),
    nothing("CREATE VIEW w AS SELECT * FROM t", "DROP VIEW w"),
    nothing("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.i = 1", "DROP TRIGGER tr"),
    nothing("CREATE TEMPORARY TABLE t (z INT)", "ALTER TABLE t ADD COLUMN q INT", "DROP TEMPORARY TABLE t"),
    nothing("CREATE TABLE IF NOT EXISTS t (id INT)"),
    nothing("CREATE TABLE IF NOT EXISTS t LIKE o"),
    # indexes
    nothing(A + "ADD INDEX k (v, i), ADD UNIQUE KEY k2 (n, id), ALGORITHM=INPLACE, LOCK=NONE"),
    nothing(A + "ADD KEY (tx(10)) USING BTREE COMMENT 'x', ADD FULLTEXT INDEX ft (tx)"),
    nothing(A + "DROP INDEX kv", A + "DROP KEY u"),
    nothing(A + "RENAME INDEX kv TO kw, COMMENT = 'x'"),
    nothing("CREATE INDEX k ON t (v DESC)", "DROP INDEX k ON t"),
    nothing("CREATE UNIQUE INDEX k ON t (n, v) ALGORITHM=INPLACE LOCK=NONE", "DROP INDEX k ON t"),
    nothing(A + "ADD CONSTRAINT uq UNIQUE (n, i)", A + "DROP INDEX uq"),
    nothing(A + "ADD INDEX k ((i + 1))", flavor=_MYSQL),
    nothing(A + "ALTER INDEX kv INVISIBLE", A + "ALTER INDEX kv VISIBLE", flavor=_MYSQL),
    nothing(A + "ALTER INDEX kv IGNORED", A + "ALTER INDEX kv NOT IGNORED", flavor=_MARIADB),
    nothing(A + "ADD INDEX IF NOT EXISTS kv (v)", A + "DROP INDEX IF EXISTS nope", flavor=_MARIADB),
    nothing("DROP INDEX w ON t", "CREATE UNIQUE INDEX w2 ON t (n)", table=UNIQUE),
    # constraints
    nothing(A + "ADD CONSTRAINT ck CHECK (n > 0)", A + "DROP CONSTRAINT ck"),
    nothing(A + "ADD CHECK (i IS NULL OR i <> 99)"),
    nothing(A + "ADD CONSTRAINT ck CHECK (n > 0) NOT ENFORCED", A + "ALTER CHECK ck ENFORCED", A + "DROP CHECK ck", flavor=_MYSQL),
    nothing(A + "ADD CONSTRAINT fk FOREIGN KEY (i) REFERENCES p (id)", A + "DROP FOREIGN KEY fk"),
    nothing(A + "ADD FOREIGN KEY (i) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION"),
    # options, defaults, comments
    nothing(A + "ENGINE=InnoDB"), nothing(A + "FORCE"), nothing("OPTIMIZE TABLE t"), nothing("ANALYZE TABLE t"),
    nothing(A + "ORDER BY n DESC, i"),
    nothing(A + "ROW_FORMAT=DYNAMIC, COMMENT='x', AUTO_INCREMENT=100"),
    nothing(A + "ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8", A + "ROW_FORMAT=DEFAULT KEY_BLOCK_SIZE=0"),
    nothing(A + "STATS_PERSISTENT=1, STATS_AUTO_RECALC=DEFAULT, STATS_SAMPLE_PAGES=30"),
    nothing(A + "DEFAULT CHARACTER SET latin1"), nothing(A + "CHARACTER SET = latin1 COLLATE = latin1_bin"),
    nothing(A + "ALTER COLUMN i SET DEFAULT 9, ALTER v SET DEFAULT 'x', ALTER COLUMN n DROP DEFAULT"),
    nothing(A + "ALTER COLUMN i SET DEFAULT (1 + 1)"),
    nothing(A + "ALTER COLUMN v SET INVISIBLE", A + "ALTER COLUMN v SET VISIBLE", flavor=_MYSQL),
    nothing("SET STATEMENT max_statement_time = 100 FOR ALTER TABLE t COMMENT 'x'", flavor=_MARIADB),
    nothing("ALTER ONLINE TABLE t COMMENT 'x'", flavor=_MARIADB), nothing(A + "WAIT 5 COMMENT 'x'", flavor=_MARIADB),
    nothing(A + "/*!50000 ADD */ INDEX k (v) /* , DROP COLUMN v */ -- , DROP COLUMN i"),
    nothing(A + "ADD COLUMN IF NOT EXISTS v INT DEFAULT 4", flavor=_MARIADB),
    nothing(A + "DROP COLUMN IF EXISTS nope", flavor=_MARIADB),
    nothing(A + "DISABLE KEYS", A + "ENABLE KEYS"),
    # columns that are defined as they are
    nothing(A + "MODIFY i INT COMMENT 'hello'"), nothing(A + "MODIFY COLUMN i INT(11) DEFAULT 8"),
    nothing(A + "CHANGE i i INT NULL DEFAULT NULL COMMENT 'x'"), nothing(A + "MODIFY n INT NOT NULL COMMENT 'x'"),
    nothing(A + "MODIFY id INT NOT NULL COMMENT 'key'"),
    nothing(A + "MODIFY v VARCHAR(10) CHARACTER SET utf8mb4 COMMENT 'x'"), nothing(A + "MODIFY v VARCHAR(10) COMMENT 'x'"),
    nothing(A + "MODIFY v VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"), nothing(A + "MODIFY s CHAR(5) COLLATE utf8mb4_bin"),
    nothing(A + "MODIFY l VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin"), nothing(A + "MODIFY d DECIMAL(10,3) DEFAULT 1.5"),
    nothing(A + "MODIFY f FLOAT COMMENT 'x', MODIFY db DOUBLE COMMENT 'x'"), nothing(A + "MODIFY dt DATETIME DEFAULT CURRENT_TIMESTAMP"),
    nothing(A + "MODIFY ts TIMESTAMP NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP"), nothing(A + "MODIFY dt6 DATETIME(6) COMMENT 'x'"),
    nothing(A + "MODIFY e ENUM('a','b','c') DEFAULT 'a', MODIFY st SET('x','y','z') COMMENT 'x'"),
    nothing(A + "MODIFY b VARBINARY(10) COMMENT 'x', MODIFY tx TEXT COMMENT 'x', MODIFY bi BIT(4) COMMENT 'x'"),
    nothing(A + "MODIFY tm TIME COMMENT 'x', MODIFY y YEAR COMMENT 'x', MODIFY dd DATE COMMENT 'x'"),
    nothing(A + "MODIFY n INT NULL"),
    nothing(A + "MODIFY n INT NULL", "INSERT INTO t (id) VALUES (70)"),
    *(nothing(A + f"MODIFY {column} NOT NULL", before=(mode,), table=FULL)
      for mode in (STRICT, TRANS)
      for column in ("i INT", "v VARCHAR(10)", "tx TEXT", "d DECIMAL(10,3)", "dt DATETIME", "e ENUM('a','b','c')", "b VARBINARY(10)",
                     "bi BIT(4)", "y YEAR", "dd DATE", "f FLOAT", "st SET('x','y','z')", "tm TIME")),
    # partitions
    nothing(A + "REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (2), PARTITION b VALUES LESS THAN (3))", table=PARTITIONED),
    nothing(A + "REORGANIZE PARTITION p0, p1 INTO (PARTITION a VALUES LESS THAN (10))", table=PARTITIONED),
    nothing(A + "ADD PARTITION (PARTITION p3 VALUES LESS THAN (90))", table=PARTITIONED),
    nothing(A + "ANALYZE PARTITION p0, p1", A + "CHECK PARTITION ALL", A + "OPTIMIZE PARTITION p0", table=PARTITIONED),
    nothing(A + "REBUILD PARTITION p0, p2", table=PARTITIONED), nothing(A + "REMOVE PARTITIONING", table=PARTITIONED),
    nothing(A + "PARTITION BY HASH(id) PARTITIONS 3", table=PARTITIONED), nothing(A + "COMMENT 'x' PARTITION BY KEY(id)", table=HASHED),
    nothing(A + "COALESCE PARTITION 2", A + "ADD PARTITION PARTITIONS 3", table=HASHED),
]  # fmt: skip

_NEW = (
    "INT", "INT DEFAULT 42", "VARCHAR(10) NOT NULL DEFAULT 'a''b\\\\c'", "INT DEFAULT 1 FIRST", "INT DEFAULT 1 AFTER i",
    "INT NULL DEFAULT 3", "INT NOT NULL", "BIGINT UNSIGNED NOT NULL", "DECIMAL(8,2) NOT NULL", "DOUBLE NOT NULL",
    "VARCHAR(5) NOT NULL", "CHAR(3) NOT NULL", "TEXT NOT NULL", "BLOB NOT NULL", "BINARY(3) NOT NULL", "VARBINARY(3) NOT NULL",
    "BIT(4) NOT NULL", "ENUM('p','q') NOT NULL", "SET('p','q') NOT NULL", "YEAR NOT NULL", "TIME NOT NULL", "JSON NOT NULL",
    "DATETIME DEFAULT CURRENT_TIMESTAMP", "DATETIME(6) DEFAULT NOW(6)", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "INT DEFAULT (1+1)", "DATE DEFAULT (CURDATE())", "DECIMAL(5,1) DEFAULT 1.25", "INT DEFAULT '007'", "CHAR(5) DEFAULT 'a  '",
    "DATETIME DEFAULT '2024-01-02'", "BOOL DEFAULT TRUE", "VARBINARY(4) DEFAULT x'00ff'", "VARCHAR(5) DEFAULT _latin1 x'e9'",
    "INT GENERATED ALWAYS AS (n*2) STORED", "INT AS (n*2) VIRTUAL", "INT INVISIBLE DEFAULT 3", "INT NOT NULL AUTO_INCREMENT UNIQUE",
    "INT /*!50000 NOT NULL DEFAULT 8 */",
)  # fmt: skip

CHANGES = [
    *(change(A + f"ADD COLUMN x {definition}") for definition in _NEW),
    *(change(A + f"ADD COLUMN x {kind} NOT NULL", before=(LAX,)) for kind in ("DATE", "DATETIME", "TIMESTAMP")),
    change(A + "ADD (x INT, z INT DEFAULT 3)"), change(A + "ADD INDEX k (v), ADD COLUMN x INT"),
    change(A + "COMMENT 'x', DROP COLUMN v"), change(A + "DROP COLUMN v"), change(A + "DROP v, ALGORITHM=INSTANT"),
    change(A + "DROP COLUMN v, ADD COLUMN v VARCHAR(10) DEFAULT 'new' AFTER n"),
    change(A + "DROP COLUMN v", A + "ADD COLUMN v VARCHAR(10) AFTER n"),
    change(A + "RENAME COLUMN v TO w"), change(A + "RENAME COLUMN v TO vi, RENAME COLUMN vi TO v"),
    change(A + "CHANGE COLUMN i j BIGINT"), change(A + "CHANGE i I INT"), change(A + "MODIFY COLUMN i INT AFTER dd"),
    change(A + "MODIFY COLUMN v VARCHAR(10) AFTER vi"), change(A + "MODIFY i BIGINT"),
    change(A + "MODIFY i SMALLINT", before=(LAX,)), change(A + "MODIFY i INT UNSIGNED", before=(LAX,)),
    change(A + "MODIFY i VARCHAR(20)"), change(A + "MODIFY i DECIMAL(12,2)"), change(A + "MODIFY i DOUBLE"),
    change(A + "MODIFY f DOUBLE"), change(A + "MODIFY db FLOAT", before=(LAX,)), change(A + "MODIFY db VARCHAR(40)"),
    change(A + "MODIFY f VARCHAR(40)"), change(A + "MODIFY v VARCHAR(100)"), change(A + "MODIFY v VARCHAR(300)"),
    change(A + "MODIFY v TEXT"), change(A + "MODIFY v VARCHAR(4)", before=(LAX,)), change(A + "MODIFY v INT", before=(LAX,)),
    change(A + "MODIFY vi INT"), change(A + "MODIFY s VARCHAR(5)"), change(A + "MODIFY v CHAR(20)"),
    change(A + "MODIFY d DECIMAL(10,1)"), change(A + "MODIFY d DECIMAL(20,5)"), change(A + "MODIFY dt DATETIME(6)"),
    change(A + "MODIFY dt6 DATETIME"), change(A + "MODIFY dt DATE", before=(LAX,)), change(A + "MODIFY dd DATETIME"),
    change(A + "MODIFY ts DATETIME", before=("SET time_zone = '+05:00'",)),
    change(A + "MODIFY dt TIMESTAMP NULL", before=("SET time_zone = '+05:00'", LAX)), change(A + "MODIFY tm TIME(3)"),
    change(A + "MODIFY l VARCHAR(20) CHARACTER SET utf8mb4"), change(A + "MODIFY tx TEXT CHARACTER SET ascii", before=(LAX,)),
    change(A + "MODIFY l VARCHAR(20)"), change(A + "CHANGE l l VARCHAR(20) COMMENT 'x'"),
    change(A + "DEFAULT CHARACTER SET latin1, MODIFY s CHAR(5)"), change(A + "MODIFY s CHAR(5), CHARACTER SET latin1"),
    change(A + "CONVERT TO CHARACTER SET utf8mb4"), change(A + "CONVERT TO CHARACTER SET latin1"),
    change(A + "DEFAULT CHARACTER SET ascii", A + "MODIFY tx TEXT", before=(LAX,)),
    change(A + "MODIFY b VARCHAR(10) CHARACTER SET latin1", before=(LAX,)), change(A + "MODIFY e ENUM('a','b','c','dd')"),
    change(A + "MODIFY e ENUM('z','a','b','c')"), change(A + "MODIFY e ENUM('c','b','a')"),
    change(A + "MODIFY e ENUM('a','B2','c')", before=(LAX,)), change(A + "MODIFY e VARCHAR(10)"),
    change(A + "MODIFY st SET('x','y','z','w')"), change(A + "MODIFY bi BIT(8)"), change(A + "MODIFY n TINYINT(1) NOT NULL"),
    *(change(A + f"MODIFY {column} NOT NULL", before=(LAX,)) for column in ("v VARCHAR(10)", "i INT", "dt DATETIME", "ts TIMESTAMP")),
    change(A + "MODIFY n INT NULL", "INSERT INTO t (id) VALUES (70)", LAX, A + "MODIFY n INT NOT NULL"),
    change(A + "MODIFY ts TIMESTAMP NOT NULL", table=FULL), change(A + "MODIFY n INT NOT NULL AUTO_INCREMENT"),
    change(A + "DROP PRIMARY KEY, ADD PRIMARY KEY (n)"), change(A + "DROP PRIMARY KEY"), change("DROP INDEX `PRIMARY` ON t"),
    *(change(A + f"{clauses}", table=table) for table in COMPOSITE
      for clauses in ("DROP a", "DROP id", "DROP a, DROP id", "DROP a, ADD c INT", "DROP a, RENAME COLUMN b TO a")),
    change(A + "DROP a, DROP INDEX uk, ADD UNIQUE uk (id)", table=COMPOSITE[0]),
    *(change("DROP INDEX u ON t", statement, table=UNIQUE)
      for statement in (A + "ADD UNIQUE a (n)", A + "ADD CONSTRAINT UNIQUE a (n)", "CREATE UNIQUE INDEX a ON t (n)")),
    change("DROP INDEX u ON t", table=UNIQUE), change(A + "DROP INDEX u, ADD UNIQUE u (id, n)", table=UNIQUE),
    change(A + "RENAME INDEX u TO x", table=UNIQUE), change(A + "ADD PRIMARY KEY (id)", table=UNIQUE),
    change("CREATE OR REPLACE UNIQUE INDEX u ON t (id, n)", table=UNIQUE, flavor=_MARIADB),
    change(A + "MODIFY id INT NOT NULL AUTO_INCREMENT"), change(A + "ENGINE=MyISAM"),
    change(A + "ADD FOREIGN KEY (i) REFERENCES p (id) ON DELETE CASCADE"),
    change(A + "ADD FOREIGN KEY (i) REFERENCES p (id) ON UPDATE SET NULL"),
    change("TRUNCATE TABLE t"), change("TRUNCATE t"), change("DROP TABLE t, o"),
    change("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))"),
    change("DROP TABLE t", "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)"), change("DROP TABLE t", "CREATE TABLE t LIKE o"),
    change("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))", flavor=_MARIADB),
    change("CREATE OR REPLACE TABLE t LIKE o", flavor=_MARIADB),
    change("RENAME TABLE t TO t_other"), change(A + "RENAME TO t_other"), change(A + "COMMENT 'x', RENAME AS t_other"),
    change("CREATE TABLE t_new LIKE t", "INSERT INTO t_new SELECT * FROM t WHERE id < 3",
           "ALTER TABLE t_new ADD COLUMN x INT DEFAULT 1", "RENAME TABLE t TO t_old, t_new TO t"),
    change("CREATE TABLE t_new LIKE t", "DROP TABLE t", "ALTER TABLE t_new RENAME t"),
    change(A + "DROP PARTITION p0", table=PARTITIONED), change(A + "TRUNCATE PARTITION p0, p1", table=PARTITIONED),
    change("CREATE TABLE t_x (id INT NOT NULL PRIMARY KEY, v VARCHAR(10))", "INSERT INTO t_x VALUES (2,'other')",
           A + "EXCHANGE PARTITION p0 WITH TABLE t_x", table=PARTITIONED),
    change("CREATE TABLE a (id INT NOT NULL PRIMARY KEY, v VARCHAR(10)) PARTITION BY RANGE(id) (PARTITION p0 VALUES LESS THAN (99))",
           "ALTER TABLE t REMOVE PARTITIONING", "ALTER TABLE a EXCHANGE PARTITION p0 WITH TABLE t", table=PARTITIONED),
    change(A + "CONVERT PARTITION p0 TO TABLE t_p0", table=PARTITIONED, flavor=_MARIADB),
    change("CREATE TABLE t_x (id INT NOT NULL PRIMARY KEY, v VARCHAR(10))", "INSERT INTO t_x VALUES (32,'in')",
           A + "CONVERT TABLE t_x TO PARTITION p9 VALUES LESS THAN (40)", table=PARTITIONED, flavor=_MARIADB),
    change("FLUSH TABLES t FOR EXPORT", "UNLOCK TABLES", A + "DISCARD TABLESPACE"),
    change("ALTER IGNORE TABLE t ADD COLUMN x INT DEFAULT 1, ADD UNIQUE (x)", flavor=_MARIADB),
    change("ALTER IGNORE TABLE t ADD UNIQUE (vi)", flavor=_MARIADB), change(A + "ADD SYSTEM VERSIONING", flavor=_MARIADB),
    change(A + "ADD COLUMN x UUID DEFAULT UUID()", flavor=_MARIADB), change(A + "ADD COLUMN IF NOT EXISTS x INT", flavor=_MARIADB),
    change(A + "DROP COLUMN IF EXISTS v", flavor=_MARIADB),
    change(A + "DROP COLUMN IF EXISTS i", A + "ADD COLUMN IF NOT EXISTS stock INT AFTER id", flavor=_MARIADB),
    change(A + "ADD COLUMN IF NOT EXISTS (x INT)", A + "MODIFY COLUMN IF EXISTS x INT FIRST", flavor=_MARIADB),
    change("SET STATEMENT max_statement_time = 100 FOR ALTER TABLE t ADD COLUMN x INT DEFAULT 6", flavor=_MARIADB),
    change(A + "ADD COLUMN x INT DEFAULT 1", before=("SET SESSION binlog_format = 'STATEMENT'",)),
    change(A + "ADD COLUMN x INT DEFAULT 1", before=("SET SESSION binlog_alter_two_phase = 1",), flavor=_MARIADB),
    change("DROP DATABASE {database}"),
]  # fmt: skip

_BAG = (TABLE[0].replace("PRIMARY KEY (id), UNIQUE KEY u (n)", "UNIQUE KEY u (i)"), *TABLE[1:])
#: tables without a key: none of their indexes is a key
KEYLESS = [
    nothing(A + "DROP INDEX kv", A + "DROP KEY u", table=_BAG), nothing("DROP INDEX kv ON t", "DROP INDEX u ON t", table=_BAG),
    nothing(A + "RENAME INDEX kv TO kw, ADD INDEX k (v), DROP INDEX u, COMMENT 'x'", table=_BAG),
    nothing(A + "ALTER INDEX kv INVISIBLE", flavor=_MYSQL, table=_BAG), nothing(A + "ALTER INDEX kv IGNORED", flavor=_MARIADB, table=_BAG),
    nothing(A + "ADD CONSTRAINT ck CHECK (n > 0)", A + "DROP CONSTRAINT ck", A + "ADD UNIQUE uq (n, i)", table=_BAG),
    nothing("CREATE INDEX k ON t (v)", table=_BAG), nothing("CREATE OR REPLACE INDEX kv ON t (v, i)", flavor=_MARIADB, table=_BAG),
]  # fmt: skip

#: the table has texts that the default of new columns cannot hold, and NULLs
LOSING = nothing(table=(*TABLE, A + "DEFAULT CHARACTER SET ascii"))
