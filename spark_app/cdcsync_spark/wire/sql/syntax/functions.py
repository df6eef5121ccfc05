"""Functions that both servers have built in: they are looked for before stored ones."""

from __future__ import annotations

from cdcsync_spark.wire.sql.syntax.reader import words

#: built in, whatever stands before their parenthesis
FUNCTIONS = words(
    "ABS COALESCE CONCAT CONCAT_WS CONV CRC32 FROM_UNIXTIME GREATEST HEX IF IFNULL ISNULL LEAST LENGTH LOWER MD5 NULLIF REPLACE"
    " ROUND SHA1 SHA2 UNHEX UNIX_TIMESTAMP UPPER UTC_TIMESTAMP VALUES"
)
#: built in only right before their parenthesis, unless sql_mode has IGNORE_SPACE
ADJACENT = words("BIT_XOR CAST COUNT MAX MIN NOW SUM")
BEFORE_PARENTHESIS = words("AND OR NOT XOR IN WHERE CASE WHEN THEN ELSE BETWEEN LIKE SELECT VALUES VALUE")
#: behind AS in a CAST
AS_TYPE = words("UNSIGNED SIGNED CHAR BINARY")
