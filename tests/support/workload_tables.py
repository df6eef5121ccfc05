"""The tables that the stress workload writes: one for each kind of key, a journal of pure inserts,
a counter walk.

Why so many keys with so few writes each: where a key is written again and again, a row that was
lost comes back with its next write before the comparison. A key is a function of its number, so
that a seed decides what is written; every second number is loaded before the writers start, so that
inserts fall into every part of the key space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

Literals = tuple[str, ...]

WALK = "walk"
JOURNAL = "journal"
#: the walk: insert, updates, delete, insert again, updates; `GONE` is the step after which the row
#: is not there
LAST_STEP, GONE, BORN = 8, 4, (1, 5)

PAYLOAD = ("n", "d", "s", "b", "t", "e", "m")
_PAYLOAD_DDL = (
    "n BIGINT NULL, d DOUBLE NULL, s VARCHAR(80) CHARACTER SET utf8mb4 NULL, b VARBINARY(24) NULL, "
    "t TIMESTAMP(3) NULL, e ENUM('new','open','done') NULL, m DECIMAL(12,3) NULL"
)


@dataclass(frozen=True)
class KeyTable:
    """A table with a key of one kind. `literals(number)` are the SQL literals of a key, one per key
    column; `respelled` those of a key that the server takes for the same one where the collation
    allows it."""

    name: str
    key: tuple[str, ...]
    key_ddl: str
    literals: Callable[[int], Literals]
    respelled: Callable[[int], Literals]
    more_ddl: str = ""

    def ddl(self) -> str:
        columns = f"{self.key_ddl}, {_PAYLOAD_DDL}"
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self.key)}){self.more_ddl})"

    def where(self, number: int) -> str:
        return " AND ".join(f"{c} = {v}" for c, v in zip(self.key, self.literals(number), strict=True))


def payload(random: Random) -> Literals:
    """Literals of `PAYLOAD`; about one in six is NULL."""
    moment = 1_000_000_000_000 + random.randrange(700_000_000_000)
    values = (
        str(random.randrange(-(2**63), 2**63) if random.random() < 0.3 else random.randrange(10**6)),
        repr(random.random() * 10.0 ** random.randrange(-6, 9)),
        f"'{random.choice(_WORDS)} {random.randrange(10**9)}'",
        f"x'{random.randbytes(random.randrange(0, 13)).hex()}'",
        f"'{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%d %H:%M:%S}.{moment % 1000:03d}'",
        random.choice(("'new'", "'open'", "'done'")),
        f"{random.randrange(-(10**11), 10**11) / 1000:.3f}",
    )
    return tuple("NULL" if random.random() < 0.16 else v for v in values)


_WORDS = ("snow", "Straße", "naïve", "日本", "🙂 smile", "tail ", "MiXeD", "ёлка")
_EPOCH = datetime(2001, 1, 1)


def _by_int(number: int) -> Literals:
    return (str(number * 3 - 30_000),)


def _by_unsigned(number: int) -> Literals:
    return (str(2**63 + number * 1_000_003),)


def _by_name(number: int) -> Literals:
    return (f"'{'aÄzßéQ日'[number % 7]}{number:x}'",)


def _by_name_respelled(number: int) -> Literals:
    return (f"'{'AäZßÉq日'[number % 7]}{number:X}'",)


def _by_code(number: int) -> Literals:
    return (f"'{number % 97:02d}-{number:06d}-é'",)


def _by_token(number: int) -> Literals:
    digest = hashlib.md5(number.to_bytes(8)).digest()
    return (
        f"x'{digest[: 16 - number % 4].ljust(16, bytes(1)).hex()}'",
    )  # some end in zero bytes: the binlog leaves them out


def _by_amount(number: int) -> Literals:
    scaled = (number - 20_000) * 10_003
    return (f"{'-' if scaled < 0 else ''}{abs(scaled) // 10_000}.{abs(scaled) % 10_000:04d}",)


def _by_moment(number: int) -> Literals:
    return (f"'{_EPOCH + timedelta(seconds=number * 97, microseconds=number * 13):%Y-%m-%d %H:%M:%S.%f}'",)


def _by_pair(number: int) -> Literals:
    return (str(number % 150 - 50), f"'p{number:06x}'")


KEY_TABLES = (
    KeyTable("by_int", ("id",), "id INT NOT NULL", _by_int, _by_int),
    KeyTable("by_unsigned", ("id",), "id BIGINT UNSIGNED NOT NULL", _by_unsigned, _by_unsigned),
    KeyTable(
        "by_name",
        ("name",),
        "name VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL",
        _by_name,
        _by_name_respelled,
    ),
    KeyTable("by_code", ("code",), "code VARCHAR(32) CHARACTER SET latin1 NOT NULL", _by_code, _by_code),
    KeyTable("by_token", ("token",), "token BINARY(16) NOT NULL", _by_token, _by_token),
    KeyTable("by_amount", ("amount",), "amount DECIMAL(20,4) NOT NULL", _by_amount, _by_amount),
    KeyTable("by_moment", ("moment",), "moment DATETIME(6) NOT NULL", _by_moment, _by_moment),
    # The unique `n` makes REPLACE and ON DUPLICATE KEY UPDATE meet other rows than the one of the
    # key that they name.
    KeyTable(
        "by_pair",
        ("part", "item"),
        "part INT NOT NULL, item VARCHAR(20) NOT NULL",
        _by_pair,
        _by_pair,
        ", UNIQUE KEY met (n)",
    ),
)

WALK_DDL = f"CREATE TABLE {WALK} (id BIGINT NOT NULL PRIMARY KEY, counter INT NOT NULL, writer INT NOT NULL)"
JOURNAL_DDL = (
    f"CREATE TABLE {JOURNAL} (seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, {_PAYLOAD_DDL})"
)

#: table -> its key's columns
KEYS = {t.name: t.key for t in KEY_TABLES} | {WALK: ("id",), JOURNAL: ("seq",)}
DDL = (*(t.ddl() for t in KEY_TABLES), WALK_DDL, JOURNAL_DDL)


def walk_id(writer: int, number: int) -> int:
    """Ids of one writer never meet another's, and lie all over the key space (an odd factor
    permutes a power of two)."""
    return (number * 64 + writer) * 2_654_435_761 % 2**31
