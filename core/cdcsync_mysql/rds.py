"""Amazon RDS and Aurora: what is set there differently than by SQL, and how long they keep the
binlog.

No account of a user has SUPER, SET GLOBAL or SET PERSIST there: variables are set by a parameter
group. The master user of RDS for MySQL cannot grant BACKUP_ADMIN, so a low watermark needs GTIDs.
`binlog_expire_logs_seconds` says nothing about how long a binlog is kept; `mysql.rds_configuration`
does. Sources: Amazon RDS User Guide, "Parameter groups", "Configuring RDS for MySQL binary
logging", "mysql.rds_set_configuration".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from cdcsync_core.errors import CdcError, Reason
from cdcsync_mysql.checks import Check, Level
from cdcsync_mysql.sessions.connection import Connection, fetch

#: without a configured retention a file is removed once it is copied away, which happens every five
#: minutes
_SOON_SECONDS = 300.0
_RETENTION = "binlog retention hours"
#: the statement that makes RDS keep the binlog
KEEP_BINLOG = f"CALL mysql.rds_set_configuration('{_RETENTION}', 72)"
_SET = re.compile(r"SET (?:PERSIST|GLOBAL) (\w+)(?: = ('[^']*'|\w+))?(?:, and in the server's configuration)?")
_START = re.compile(r"start the server with(out)? --([\w-]+)")
_BACKUPS = "turn on automated backups (a backup retention of at least one day), with which RDS writes a binlog"
_GTIDS = (
    "set gtid_mode = ON and enforce_gtid_consistency = ON in the DB parameter group, in AWS's steps, each with a reboot"
)


def is_rds(connection: Connection, variables: Mapping[str, str]) -> bool:
    """Whether the server is RDS: by where the program lies, or by the tables that only RDS has."""
    if variables.get("basedir", "").startswith("/rdsdbbin") or "aurora_version" in variables:
        return True
    return bool(
        fetch(
            connection,
            "SELECT 1 FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME IN ('rds_configuration', 'rds_heartbeat2') LIMIT 1",
        )
    )


def retention_seconds(connection: Connection) -> float | None:
    """How long RDS keeps the binlog; None where this is not RDS, or it does not say."""
    there = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'rds_configuration'"
    if not fetch(connection, there):
        return None
    try:
        rows = fetch(connection, "SELECT value FROM mysql.rds_configuration WHERE name = %s", (_RETENTION,))
    except CdcError as e:
        if e.reason is not Reason.PRIVILEGE_MISSING:
            raise
        return None
    hours = rows[0][0] if rows else None
    return float(hours) * 3600 if hours is not None else _SOON_SECONDS


def is_purged_soon(seconds: float | None) -> bool:
    """Whether no retention is configured."""
    return seconds == _SOON_SECONDS


def on_rds(check: Check) -> Check:
    """The check with a remedy that can be carried out there. Pure."""
    if check.level is Level.OK or not check.remedy:
        return check
    return replace(check, remedy=rds_remedy(check.remedy))


def rds_remedy(remedy: str) -> str:
    if remedy.endswith("; or gtid_mode=ON"):
        return _GTIDS
    if remedy == "start the server with --log-bin":
        return _BACKUPS
    if remedy == "SET PERSIST gtid_mode":
        return _GTIDS
    return _START.sub(_started, _SET.sub(_parameter, remedy))


def _parameter(match: re.Match[str]) -> str:
    value = f" = {match[2].strip(chr(39)) or '(empty)'}" if match[2] else ""
    return f"set {match[1]}{value} in the DB parameter group"


def _started(match: re.Match[str]) -> str:
    name = match[2].replace("-", "_")
    return f"{'remove' if match[1] else 'set'} {name} in the DB parameter group"
