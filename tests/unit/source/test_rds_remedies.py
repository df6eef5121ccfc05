"""Remedies that can be carried out on Amazon RDS: by parameter group, never by SET PERSIST or SET
GLOBAL."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import Reason
from cdcsync_mysql.checks import failed, passed
from cdcsync_mysql.rds import on_rds, rds_remedy


@pytest.mark.parametrize(
    ("remedy", "there"),
    [
        ("SET PERSIST binlog_format = 'ROW'", "set binlog_format = ROW in the DB parameter group"),
        (
            "SET PERSIST binlog_row_metadata = 'FULL', and in the server's configuration",
            "set binlog_row_metadata = FULL in the DB parameter group",
        ),
        (
            "SET PERSIST binlog_row_value_options = ''",
            "set binlog_row_value_options = (empty) in the DB parameter group",
        ),
        ("SET GLOBAL sync_binlog = 1", "set sync_binlog = 1 in the DB parameter group"),
        ("start the server without --binlog-ignore-db", "remove binlog_ignore_db in the DB parameter group"),
        ("start the server with --log-replica-updates", "set log_replica_updates in the DB parameter group"),
        ("GRANT SELECT ON *.* TO 'cdc'@'%'", "GRANT SELECT ON *.* TO 'cdc'@'%'"),
    ],
)
def test_a_variable_is_set_by_its_parameter_group(remedy: str, there: str) -> None:
    assert rds_remedy(remedy) == there


@pytest.mark.parametrize("remedy", ["SET PERSIST gtid_mode", "GRANT BACKUP_ADMIN ON *.* TO 'cdc'@'%'; or gtid_mode=ON"])
def test_low_watermarks_need_gtids(remedy: str) -> None:
    assert "gtid_mode = ON and enforce_gtid_consistency = ON" in rds_remedy(remedy)


def test_a_binlog_comes_with_backups() -> None:
    assert "automated backups" in rds_remedy("start the server with --log-bin")


def test_what_passed_stays_as_it_is() -> None:
    assert on_rds(passed("x", "1")) == passed("x", "1")
    check = failed("x", Reason.LOG_INCOMPLETE, "0", "1", "SET GLOBAL x = 1")
    assert on_rds(check).error.remedy == "set x = 1 in the DB parameter group"
