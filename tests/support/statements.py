"""The corpus of statements, and the captured table that they are about as each server declares
it."""

from __future__ import annotations

from pathlib import Path

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.wire.sql.syntax.tokens import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, UNKNOWN_SESSION, Session

TYPES = {
    "id": "int",
    "i": "int",
    "n": "int",
    "v": "varchar(10)",
    "s": "char(5)",
    "l": "varchar(20)",
    "d": "decimal(10,3)",
    "f": "float",
    "db": "double",
    "dt": "datetime",
    "ts": "timestamp",
    "e": "enum('a','b','c')",
    "st": "set('x','y','z')",
    "b": "varbinary(10)",
    "tx": "text",
    "bi": "bit(4)",
    "tm": "time",
    "y": "year",
    "dd": "date",
    "dt6": "datetime(6)",
    "vi": "varchar(10)",
}
_TEXTS = {"v", "s", "l", "e", "st", "tx", "vi"}


def _column(name: str, declared: str) -> Column:
    charset = ("latin1" if name == "l" else "utf8mb4") if name in _TEXTS else ""
    collation = f"{charset}_general_ci" if charset else ""
    return Column(name, SourceType.parse(declared, charset), name not in ("id", "n"), collation)


ORDERS = Capture(
    SourceTable(TableId("shop", "orders"), tuple(_column(n, t) for n, t in TYPES.items()), "utf8mb4", frozenset()),
    ("id",),
    key_index="PRIMARY",
)
#: as MariaDB declares the same
WIDE = Capture(
    SourceTable(
        ORDERS.id,
        tuple(_column(n, {"int": "int(11)", "year": "year(4)"}.get(t, t)) for n, t in TYPES.items()),
        "utf8mb4",
        frozenset(),
    ),
    ("id",),
    key_index="PRIMARY",
)

STRICT = 1 << 21
_MYSQL, _MARIADB = Session(STRICT, "utf8mb4", False, 90_704), Session(STRICT, "utf8mb4", True, 101_119)
SESSIONS = {
    "any": (_MYSQL, _MARIADB, Session(1 << 22, "utf8mb3", True, 110_405)),
    "mysql": (_MYSQL,),
    "mariadb": (_MARIADB,),
    "ansi": (Session(STRICT | ANSI_QUOTES, "utf8mb4", False, 90_704),),
    "plain": (Session(STRICT | NO_BACKSLASH_ESCAPES, "utf8mb4", True, 101_119),),
    "lax": (Session(0, "utf8mb4", False, 90_704), Session(0, "utf8mb4", True, 101_119)),
    "unknown": (UNKNOWN_SESSION,),
}


_CORPUS = Path(__file__).parents[1] / "unit/wire/sql/statements.txt"


def _corpus() -> list[tuple[bool, str, str, str]]:
    """(changes, session, default database, statement)."""
    found: list[tuple[bool, str, str, str]] = []
    head: tuple[bool, str, str] = (True, "", "")
    for line in _CORPUS.read_text().splitlines():
        if line.startswith("["):
            outcome, session, database = line.strip("[]").split()
            head = (outcome == "change", session, database)
        elif line and not line.startswith("# "):
            found.append((*head, line.replace("⏎", "\n")))
    return found


CORPUS = _corpus()
