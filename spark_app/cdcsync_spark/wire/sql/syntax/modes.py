"""The server's words for `sql_mode` as the number that a Query event has. Sources: MySQL
`sql/sql_const.h`, MariaDB `sql/sql_class.h`."""

from __future__ import annotations

_WORDS = (
    "REAL_AS_FLOAT PIPES_AS_CONCAT ANSI_QUOTES IGNORE_SPACE IGNORE_BAD_TABLE_OPTIONS ONLY_FULL_GROUP_BY"
    " NO_UNSIGNED_SUBTRACTION NO_DIR_IN_CREATE POSTGRESQL ORACLE MSSQL DB2 MAXDB NO_KEY_OPTIONS NO_TABLE_OPTIONS"
    " NO_FIELD_OPTIONS MYSQL323 MYSQL40 ANSI NO_AUTO_VALUE_ON_ZERO NO_BACKSLASH_ESCAPES STRICT_TRANS_TABLES"
    " STRICT_ALL_TABLES NO_ZERO_IN_DATE NO_ZERO_DATE ALLOW_INVALID_DATES ERROR_FOR_DIVISION_BY_ZERO TRADITIONAL"
    " NO_AUTO_CREATE_USER HIGH_NOT_PRECEDENCE NO_ENGINE_SUBSTITUTION PAD_CHAR_TO_FULL_LENGTH"
)
_BITS = {word: 1 << number for number, word in enumerate(_WORDS.split())}
_OF_MYSQL = {"TIME_TRUNCATE_FRACTIONAL": 1 << 32}
_OF_MARIADB = {"EMPTY_STRING_IS_NULL": 1 << 32, "SIMULTANEOUS_ASSIGNMENT": 1 << 33, "TIME_ROUND_FRACTIONAL": 1 << 34}


def sql_mode_number(words: str, *, mariadb: bool) -> int | None:
    """`words` are separated by commas, as a server prints them. None where one of them is unknown:
    then nothing is certain of how statements are read."""
    bits = _BITS | (_OF_MARIADB if mariadb else _OF_MYSQL)
    names = [word.strip().upper() for word in words.split(",") if word.strip()]
    return sum({bits[name] for name in names}) if bits.keys() >= set(names) else None
