"""Online schema changers on a table that is written: the statement sequences of gh-ost and of
pt-online-schema-change, played by hand, and gh-ost itself.

A migration is `begin` (make the new table and copy it, while writers go on) and `swap` (exchange
the two). `old` is the table under which the previous rows are found afterwards, which `end` drops.
What gh-ost applies from the binlog is applied by hand in one piece, from the locked table, so
nothing of it is left out whatever the writers do.
"""

from __future__ import annotations

import subprocess
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pymysql

from support.servers import Server

TABLE = "orders"
COLUMNS = "`id`, `word`, `n`"
GH_OST = Path(__file__).parents[2] / ".cache" / "gh-ost" / "gh-ost"
_CHUNK = 60
_PATIENCE = 300.0
#: deadlock, lock wait timeout: a tool tries again
_AGAIN = {1213, 1205}


def make_table(server: Server, database: str, rows: int) -> None:
    server.run(
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, word VARCHAR(20) NOT NULL, n INT)",
        f"INSERT INTO {TABLE} WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {rows})"
        " SELECT i, CONCAT('w', i), i FROM s",
        db=database,
    )


@dataclass
class Migration(ABC):
    """A migration of `TABLE` in `database`; `alter` is what is asked of the tool."""

    server: Server
    database: str
    alter: str
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    #: the tables that it makes beside the captured one until the swap
    beside: ClassVar[tuple[str, ...]]
    old: ClassVar[str]

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def swap(self) -> None: ...

    def end(self) -> None:
        self._run(f"DROP TABLE IF EXISTS `{self.old}`")

    def close(self) -> None:
        """The tool, where it is a program, ends."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self._patiently(statement)

    def _patiently(self, statement: str) -> None:
        while True:
            try:
                return self.server.run(statement, db=self.database)
            except pymysql.MySQLError as e:
                if e.args[0] not in _AGAIN:
                    raise

    def _copy(self, verb: str, new: str) -> None:
        """In chunks of keys."""
        low, high = self.server.query(f"SELECT MIN(id), MAX(id) FROM {TABLE}", db=self.database)[0]
        for start in range(low, high + 1, _CHUNK):
            keys = f"((`id` >= {start})) AND ((`id` < {start + _CHUNK}))"
            self._patiently(
                f"{verb} INTO `{new}` ({COLUMNS}) (SELECT {COLUMNS} FROM `{TABLE}` FORCE INDEX (`PRIMARY`)"
                f" WHERE ({keys}) LOCK IN SHARE MODE)"
            )


class GhostByHand(Migration):
    """gh-ost's statements; its cut-over by a sentry table under two locks."""

    beside = ("_orders_gho", "_orders_ghc")
    old = "_orders_del"

    def begin(self) -> None:
        d = self.database
        self._run(
            f"drop /* gh-ost */ table if exists `{d}`.`_orders_gho`",
            f"drop /* gh-ost */ table if exists `{d}`.`_orders_ghc`",
            f"create /* gh-ost */ table `{d}`.`_orders_ghc` (id bigint unsigned auto_increment,"
            " last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
            " hint varchar(64) charset ascii not null, value varchar(4096) charset ascii not null,"
            " primary key(id), unique key hint_uidx(hint)) auto_increment=256 comment='gh-ost'",
            f"create /* gh-ost */ table `{d}`.`_orders_gho` like `{d}`.`{TABLE}`",
            f"alter /* gh-ost */ table `{d}`.`_orders_gho` {self.alter}",
        )
        self._beat("state", "GhostTableMigrated")
        self._copy(f"insert /* gh-ost `{d}`.`{TABLE}` */ ignore", "_orders_gho")
        self._beat("heartbeat", "2024-01-01T00:00:00Z")

    def _beat(self, hint: str, value: str) -> None:
        self._run(
            f"insert /* gh-ost */ into `{self.database}`.`_orders_ghc` (id, hint, value) values"
            f" (NULLIF({len(hint)}, 0), '{hint}', '{value}') on duplicate key update last_update=NOW(), value=VALUES(value)"
        )

    def swap(self) -> None:
        d = self.database
        self._run(
            f"create /* gh-ost */ table `{d}`.`_orders_del` (id int auto_increment primary key)"
            " engine=InnoDB comment='ghost-cut-over-sentry'"
        )
        with self.server.connect(db=d) as locking, locking.cursor() as cursor:
            cursor.execute(f"lock /* gh-ost */ tables `{d}`.`{TABLE}` write, `{d}`.`_orders_del` write")
            self._apply_rest(cursor)
            rename = threading.Thread(target=self._rename)
            rename.start()
            self._await_blocked()
            cursor.execute(f"drop /* gh-ost */ table if exists `{d}`.`_orders_del`")
            cursor.execute("unlock /* gh-ost */ tables")
            rename.join()
        self._run(f"drop /* gh-ost */ table if exists `{d}`.`_orders_ghc`")

    def _apply_rest(self, locking: Any) -> None:
        """What the writers did since, as the binlog of the locked table has it."""
        locking.execute(f"SELECT {COLUMNS} FROM `{TABLE}`")
        rows = list(locking.fetchall())
        with self.server.connect(db=self.database) as connection, connection.cursor() as cursor:
            keys = ", ".join(str(row[0]) for row in rows)
            cursor.execute(f"delete /* gh-ost */ from `_orders_gho` where `id` not in ({keys})")
            cursor.executemany(f"replace /* gh-ost */ into `_orders_gho` ({COLUMNS}) values (%s, %s, %s)", rows)

    def _rename(self) -> None:
        d = self.database
        self._run(
            f"rename /* gh-ost */ table `{d}`.`{TABLE}` to `{d}`.`_orders_del`, `{d}`.`_orders_gho` to `{d}`.`{TABLE}`"
        )

    def _await_blocked(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        blocked = (
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'rename /* gh-ost%%' AND STATE LIKE %s"
        )
        while not self.server.query(blocked, "%lock%")[0][0]:
            assert time.monotonic() < deadline, "the RENAME does not wait for the lock"
            time.sleep(0.05)


class PtOnlineSchemaChange(Migration):
    """pt-online-schema-change: triggers keep the new table up to date."""

    beside = ("_orders_new",)
    old = "_orders_old"

    def begin(self) -> None:
        d, new = self.database, "_orders_new"
        definition = str(self.server.query(f"SHOW CREATE TABLE `{TABLE}`", db=d)[0][1])
        values = "NEW.`id`, NEW.`word`, NEW.`n`"
        self._run(
            definition.replace(f"CREATE TABLE `{TABLE}`", f"CREATE TABLE `{d}`.`{new}`", 1),
            f"ALTER TABLE `{d}`.`{new}` {self.alter}",
            f"CREATE TRIGGER `pt_osc_{d}_orders_del` AFTER DELETE ON `{d}`.`{TABLE}` FOR EACH ROW"
            f" DELETE IGNORE FROM `{d}`.`{new}` WHERE `{d}`.`{new}`.`id` <=> OLD.`id`",
            f"CREATE TRIGGER `pt_osc_{d}_orders_upd` AFTER UPDATE ON `{d}`.`{TABLE}` FOR EACH ROW BEGIN"
            f" DELETE IGNORE FROM `{d}`.`{new}` WHERE !(OLD.`id` <=> NEW.`id`) AND `{d}`.`{new}`.`id` <=> OLD.`id`;"
            f" REPLACE INTO `{d}`.`{new}` ({COLUMNS}) VALUES ({values}); END",
            f"CREATE TRIGGER `pt_osc_{d}_orders_ins` AFTER INSERT ON `{d}`.`{TABLE}` FOR EACH ROW"
            f" REPLACE INTO `{d}`.`{new}` ({COLUMNS}) VALUES ({values})",
        )
        self._copy("INSERT LOW_PRIORITY IGNORE", new)
        self._run(f"ANALYZE TABLE `{d}`.`{new}` /* pt-online-schema-change */")

    def swap(self) -> None:
        d = self.database
        self._run(f"RENAME TABLE `{d}`.`{TABLE}` TO `{d}`.`_orders_old`, `{d}`.`_orders_new` TO `{d}`.`{TABLE}`")
        self._run(*(f"DROP TRIGGER IF EXISTS `{d}`.`pt_osc_{d}_orders_{e}`" for e in ("del", "upd", "ins")))


class GhostItself(Migration):
    """gh-ost, which waits before its cut-over for as long as its flag file is there."""

    beside = ("_orders_gho", "_orders_ghc")
    old = "_orders_del"

    @property
    def _flag(self) -> Path:
        return self.folder / "postpone"

    @property
    def _output(self) -> Path:
        return self.folder / "gh-ost.txt"

    def begin(self) -> None:
        assert GH_OST.exists(), f"{GH_OST} is missing: make gh-ost"
        self._flag.touch()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(self._command(), stdout=output, stderr=subprocess.STDOUT)
        self._await("Row copy complete")

    def _command(self) -> list[str]:
        return [
            str(GH_OST), "--execute", "--allow-on-master", f"--host={self.server.host}", f"--port={self.server.port}",
            "--user=root", f"--database={self.database}", f"--table={TABLE}", f"--alter={self.alter}",
            f"--chunk-size={_CHUNK}", f"--postpone-cut-over-flag-file={self._flag}", "--verbose",
            f"--serve-socket-file={self.folder / 'gh-ost.sock'}", f"--throttle-additional-flag-file={self.folder / 'no'}",
            "--max-lag-millis=60000", "--cut-over-lock-timeout-seconds=10",
        ]  # fmt: skip

    def swap(self) -> None:
        assert self._process is not None
        self._flag.unlink()
        assert self._process.wait(_PATIENCE) == 0, self._shown()

    def _await(self, words: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        assert self._process is not None
        while words not in self._shown():
            assert self._process.poll() is None, self._shown()
            assert time.monotonic() < deadline, self._shown()
            time.sleep(0.1)

    def _shown(self) -> str:
        return self._output.read_text(errors="replace")
