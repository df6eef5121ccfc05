"""MySQL 9.7 servers for the tests, in the folder that `mysql97-root.sh` makes.

Why it is right: each server works on its own copy of the initialised data dictionary, without the
original's `auto.cnf`, so each has its own server UUID and therefore its own GTIDs. The server runs
under chroot, so paths on its command line are relative to the root folder while the test's are not;
`_inside` is the only translation. Data folders carry the process id of their owner, so that those
of a killed test run are found and removed by the next.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import psutil
import pymysql

from cdcsync_demo.embedded import Options, OptionValue, render_options
from cdcsync_demo.server_process import LOOPBACK, ServerProcess

ROOT = Path(__file__).parents[2] / ".cache/mysql97"

# What a CDC source needs, and little disk.
CDC_OPTIONS: Options = {
    "server-id": 12,
    "log-bin": "binlog",
    "binlog-row-metadata": "FULL",
    "innodb-redo-log-capacity": "64M",
    "skip-name-resolve": None,
    "mysqlx": False,
    "secure-file-priv": "NULL",
}


class MySQL97Missing(RuntimeError):
    """The root folder of MySQL 9.7 has not been made."""


class EmbeddedMySQL97:
    """A MySQL 9.7 server of our own; the same interface as `EmbeddedMariaDB`."""

    def __init__(self, options: Options | None = None) -> None:
        if not (ROOT / "usr/sbin/mysqld").exists():
            raise MySQL97Missing(f"found no MySQL 9.7 in {ROOT}; the test needs one; make it by `make servers`")
        _remove_orphans()
        self.datadir = ROOT / "servers" / f"{psutil.Process().pid}-{uuid.uuid4().hex[:8]}"
        self.socket = _socket_of(self.datadir)
        self._options: dict[str, OptionValue] = {**CDC_OPTIONS, **(options or {})}
        self.log = _log_of(self.datadir)
        self._process = ServerProcess(self._command, self.log)

    @property
    def port(self) -> int | None:
        return self._process.port

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.is_running()

    def start(self, port: int | None = None) -> int:
        if not self.datadir.exists():
            subprocess.run(["cp", "-a", "--reflink=auto", ROOT / "template", self.datadir], check=True)
        return self._process.start(port)

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def restart(self, **options: OptionValue) -> int:
        self.stop()
        self._options |= {name.replace("_", "-"): value for name, value in options.items()}
        return self.start(self.port)

    def connect(self, database: str | None = None, **arguments: Any) -> pymysql.connections.Connection[Any]:
        """A connection as root, through the socket, in autocommit mode."""
        return pymysql.connect(
            unix_socket=str(self.socket),
            user="root",
            database=database,
            **{"autocommit": True, "charset": "utf8mb4", "ssl_disabled": True, **arguments},
        )

    def remove(self) -> None:
        """Stops the server and removes its data."""
        self.kill()
        _remove(self.datadir)

    def _command(self, port: int) -> list[str]:
        return [
            "chroot",
            str(ROOT),
            "mysqld",
            "--no-defaults",
            "--user=root",
            f"--datadir={_inside(self.datadir)}",
            f"--socket={_inside(self.socket)}",
            f"--pid-file={_inside(self.datadir)}/mysqld.pid",
            f"--bind-address={LOOPBACK}",
            "--tmpdir=/tmp",  # of the root, whatever it is called outside
            f"--port={port}",
            *render_options(self._options),
        ]


def _inside(path: Path) -> str:
    return f"/{path.relative_to(ROOT)}"


def _remove(datadir: Path) -> None:
    shutil.rmtree(datadir, ignore_errors=True)
    _log_of(datadir).unlink(missing_ok=True)
    for remnant in ROOT.glob(f"run/{_socket_of(datadir).name}*"):
        remnant.unlink(missing_ok=True)


def _socket_of(datadir: Path) -> Path:
    # A socket's path is limited to 107 bytes: the shortest place under the root.
    return ROOT / "run" / f"{datadir.name[-8:]}.sock"


def _log_of(datadir: Path) -> Path:
    return datadir.with_name(f"{datadir.name}.log")


def _remove_orphans() -> None:
    for datadir in ROOT.glob("servers/*-????????"):
        if not psutil.pid_exists(int(datadir.name.split("-")[0])):
            _remove(datadir)
