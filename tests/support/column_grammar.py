"""Types, attributes and defaults of column definitions, as statements spell them."""

from __future__ import annotations

INTEGERS = (
    "TINYINT",
    "SMALLINT",
    "MEDIUMINT",
    "INT",
    "BIGINT",
    "INTEGER",
    "INT1",
    "INT2",
    "INT3",
    "INT4",
    "INT8",
    "MIDDLEINT",
)
DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
REALS = ("FLOAT", "DOUBLE", "DOUBLE PRECISION", "REAL", "FLOAT4", "FLOAT8")
CHARS = ("CHAR", "CHARACTER", "NCHAR", "NATIONAL CHAR", "NATIONAL CHARACTER")
VARCHARS = (
    "CHARACTER VARYING", "CHAR VARYING", "VARCHARACTER", "NVARCHAR", "NATIONAL VARCHAR", "NCHAR VARYING", "NCHAR VARCHAR",
    "NATIONAL CHAR VARYING", "NATIONAL CHARACTER VARYING", "VARCHAR", "VARCHAR", "VARCHAR",
)  # fmt: skip
TEXTS = (
    "TINYTEXT",
    "TEXT",
    "MEDIUMTEXT",
    "LONGTEXT",
    "LONG",
    "LONG VARCHAR",
    "LONG CHAR VARYING",
    "LONG CHARACTER VARYING",
)
BLOBS = ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "LONG VARBINARY")
OTHERS = ("JSON", "POINT", "GEOMETRY", "SERIAL", "UUID", "INET4", "INET6", "VECTOR(2)", "POLYGON")
CHARSETS = (
    " CHARACTER SET utf8mb4", " CHARSET latin1", " CHARACTER SET 'utf8mb4'", " CHARSET `latin1`", " CHARACTER SET utf8mb3",
    " CHARACTER SET utf8", " CHARACTER SET ascii", " CHARACTER SET binary", " COLLATE utf8mb4_bin", " COLLATE 'latin1_bin'",
    " CHARACTER SET latin1 COLLATE latin1_general_cs", " CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", " ASCII", " UNICODE",
    " BINARY", " CHARACTER SET latin1 BINARY", " BYTE", " CHARACTER SET UTF8MB4", " CHARACTER SET default", " CHAR SET latin1",
)  # fmt: skip

WHOLE = (
    "0", "1", "5", "-1", "+7", "42", "99", "007", "1.0", "'0'", "'1'", "'5'", "'-1'", "'42'", "'007'", "TRUE", "FALSE", "(5)",
    "(-3)", "('7')", "((8))", "NULL", "(TRUE)", "- 4", "5.", "2.0", "1e1", "'1.0'", "127", "100",
)  # fmt: skip
NUMBERS = (
    *WHOLE, "255", "-128", "2024", "1.5", "-2.50", "0.1", "-0.1", ".5", "1e2", "1E-2", "2.5e0", "16777217", "4294967295",
    "9223372036854775807", "18446744073709551615", "0.333", "1.255", "123456.789", "3.4e10", "'1.5'", "'0.00'", "'0.1'", "'1e2'",
    "' 5'", "'5 '", "'+5'", "'.5'", "''", "'0x10'", "\"3\"", "b'101'", "0b11", "x'05'", "0x1F", "X'0A'", "B'1'", "(1 + 1)", "(1.5)",
    "(2 * 3.0)", "(NULL)", "-0", "'-0'", "0.0", "-0.0", "_utf8mb4'5'", "(b'1')", "0.10", "-1.5e-3", "'0.10'", "1e-2", "7.25",
    "-7.125", "0.7", "1e10", "'3.14'",
)  # fmt: skip
BITS = (
    "b'1'",
    "b'0'",
    "1",
    "0",
    "TRUE",
    "b'101'",
    "0b11",
    "x'01'",
    "(b'1')",
    "'1'",
    "5",
    "NULL",
    "0x1F",
    "B'1'",
    "b''",
    "1.0",
)
YEARS = ("2024", "'2024'", "1901", "24", "'70'", "0", "'0000'", "2155", "(2020)", "NULL", "'1'")
DATES = (
    "'2024-02-29'", "'2020-01-01'", "'1999-12-31'", "'0000-00-00'", "'2024-1-1'", "'24-01-02'", "'2024/01/02'", "'20240102'", "20240102",
    "DATE'2024-03-01'", "DATE '2024-03-01'", "('2024-02-29')", "NULL", "'0001-01-01'", "(DATE'2024-03-01')", "(CURRENT_DATE)",
    "(CURDATE())", "'2024-02-29 00:00:00'", "'2024-00-00'",
)  # fmt: skip
INSTANTS = (
    *DATES, "'2020-01-01 00:00:00'", "'2024-02-29 01:02:03'", "'2024-02-29 01:02:03.5'", "'2024-02-29 01:02:03.123456'",
    "'0000-00-00 00:00:00'", "'20240102030405'", "20240102030405", "'2024-01-02T03:04:05'", "'2024-01-02 3:4:5'", "(NOW())",
    "(CURRENT_TIMESTAMP)", "TIMESTAMP'2024-03-01 01:02:03'", "'1970-01-01 00:00:01'", "'2024-01-02 03:04:05+01:00'",
    "'9999-12-31 23:59:59.9'", "'2024-03-31 02:30:00'", "'2024-02-30'", "'1969-12-31 23:59:59'", "UTC_TIMESTAMP()", "(UTC_TIMESTAMP)",
    "LOCALTIME", "NOW()", "LOCALTIMESTAMP()",
)  # fmt: skip
CLOCKS = (
    "'12:34:56'", "'12:34'", "'1 02:03:04'", "'-01:00:00'", "'838:59:59'", "'12:34:56.789'", "123456", "'123456'", "'10'", "10",
    "TIME'01:02:03'", "'24:00:00'", "'00:00:00'", "'23:59:59.9999999'", "('01:02:03')", "NULL", "0", "'-00:00:01'", "'01:02:03.000'",
)  # fmt: skip
TIMES = (*INSTANTS, *CLOCKS)
STRINGS = (
    "''", "'a'", "'abc'", "'a  '", "' '", "'é'", "'€'", "'😀'", "'it''s'", "'a\\nb'", "'a\\\\b'", "'%\\_'", "\"q\"", "\"d\"\"q\"",
    "5", "-1.50", "1e3", "TRUE", "x'41'", "0x4142", "x'c3a9'", "x'ff00'", "b'1000001'", "_latin1 x'e9'", "_utf8mb4'é'", "_latin1'é'",
    "_binary'ab'", "n'x'", "N'é'", "'a' 'b'", "('x')", "(CONCAT('a', 'b'))", "(UUID())", "('é')", "(5)", "NULL", "'0123456789'",
    "'01234567890123456789'", "CURRENT_USER", "'{}'", "'\\0'", "'a\\tb'", "(NULL)", "'A'", "_ascii'x'", "(_utf8mb4'x')",
    "'2024-01-01'", "NOW()", "_utf8mb4 x'c3a9'", "('a' )", "''''", "'ß'",
)  # fmt: skip
LONG = (
    "('x')",
    "('')",
    "('é')",
    "(NULL)",
    "NULL",
    "('it''s')",
    "(UUID())",
    "(_utf8mb4'x')",
    "'x'",
    "''",
    "(5)",
    "('{}')",
    "(x'41')",
)
DOCUMENTS = (
    "('{}')",
    "('[]')",
    "(JSON_OBJECT())",
    "(JSON_ARRAY())",
    "NULL",
    "'{}'",
    "('[1]')",
    "('null')",
    "(JSON_OBJECT('a', 1))",
)
MEMBERS = (
    "'a'",
    "'b'",
    "'r'",
    "'q'",
    "'A'",
    "'r '",
    "1",
    "2",
    "''",
    "'r,q'",
    "'q,r'",
    "'a,c'",
    "NULL",
    "('a')",
    "x'61'",
    "'1'",
    "'x'",
)
ATTRIBUTES = (
    " COMMENT 'c'", " COMMENT \"c\"", " VISIBLE", " INVISIBLE", " UNIQUE", " UNIQUE KEY", " KEY", " PRIMARY KEY", " REFERENCES p (id)",
    " REFERENCES p (id) ON DELETE CASCADE", " REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION", " CHECK (1)",
    " CONSTRAINT ck CHECK (1 = 1)", " CHECK (TRUE) NOT ENFORCED", " COLUMN_FORMAT FIXED", " STORAGE DISK", " AUTO_INCREMENT", " COMPRESSED",
    " NOT SECONDARY", " SRID 0", " ON UPDATE CURRENT_TIMESTAMP", " ENGINE_ATTRIBUTE '{}'",
    " GENERATED ALWAYS AS (n * 2) STORED", " AS (n + 1)",
    " ZEROFILL", " SIGNED", " UNSIGNED", " WITHOUT SYSTEM VERSIONING", " SERIAL DEFAULT VALUE", " DEFAULT 1", " NULL",
    " COLLATE utf8mb4_bin", " REF_SYSTEM_ID=0", " COLUMN_FORMAT DEFAULT", " COLUMN_FORMAT DYNAMIC STORAGE DEFAULT",
)  # fmt: skip
OPTIONS = (
    "DEFAULT CHARACTER SET latin1", "CHARSET utf8mb4", "COLLATE utf8mb4_bin", "COMMENT 'x'", "ALGORITHM=COPY", "ENGINE=InnoDB", "FORCE",
    "ADD INDEX kx (n)", "CONVERT TO CHARACTER SET utf8mb4", "ROW_FORMAT=DYNAMIC", "ADD CHECK (n IS NOT NULL)", "ALTER v SET DEFAULT 'z'",
    "ALTER v DROP DEFAULT", "ADD UNIQUE KEY ux (id)", "DROP INDEX kv", "CONVERT TO CHARACTER SET 'latin1'", "DROP PRIMARY KEY",
    "ADD PRIMARY KEY (n)", "DROP INDEX u", "ADD CONSTRAINT fk FOREIGN KEY (n) REFERENCES p (id)",
)  # fmt: skip


NOWS = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP")
LITERALS_OF = {
    **dict.fromkeys((*INTEGERS, "BOOL", "BOOLEAN"), WHOLE),
    **dict.fromkeys((*DECIMALS, "FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8"), NUMBERS),
    **dict.fromkeys(("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "LONG", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), LONG),
    **dict.fromkeys(("POINT", "GEOMETRY", "POLYGON", "VECTOR", "SERIAL", "INET4", "INET6", "UUID"), ("NULL",)),
    "BIT": BITS, "YEAR": YEARS, "DATE": DATES, "DATETIME": INSTANTS, "TIMESTAMP": INSTANTS, "TIME": CLOCKS,
    "JSON": DOCUMENTS, "ENUM": MEMBERS, "SET": MEMBERS,
}  # fmt: skip
