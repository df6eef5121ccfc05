"""What is decided from a server's facts and variables alone: versions, the session profile, checks,
the estimate."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, LogOffset, position_from_dict
from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.checks import Level
from cdcsync_mysql.readiness.cascades import cascades
from cdcsync_mysql.readiness.preflight import _estimate, _outlives, _unread
from cdcsync_mysql.readiness.servercheck import CHECKS, Server
from cdcsync_mysql.readiness.tablecheck import TableCheck, cascades_logged
from cdcsync_mysql.reading.table_kind import check_spelling
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source, Tls, source_from_spec
from cdcsync_mysql.sessions.session import profile
from cdcsync_mysql.sessions.version import flavor_of, parse_version

MARIADB = ServerFacts("mariadb", "10.11.19", 11)
MYSQL = ServerFacts("mysql", "9.7.4", 12, "uuid", gtid=True)


@pytest.mark.parametrize(
    ("printed", "flavor", "numbers"),
    [
        ("10.11.19-MariaDB-0+deb12u1-log", "mariadb", (10, 11, 19)),
        ("5.5.5-10.6.12-MariaDB", "mariadb", (10, 6, 12)),
        ("9.7.4-2", "mysql", (9, 7, 4)),
        ("8.0.35-0ubuntu0.22.04.1", "mysql", (8, 0, 35)),
        ("8.0.mysql_aurora.3.04.0", "mysql", (8, 0, 0)),
        ("unknown", "mysql", (0, 0, 0)),
    ],
)
def test_versions(printed: str, flavor: str, numbers: tuple[int, ...]) -> None:
    assert (flavor_of(printed), parse_version(printed)) == (flavor, numbers)


def test_tested_and_supported() -> None:
    assert MARIADB.tested
    assert not replace(MARIADB, version="11.7.2").tested
    assert replace(MARIADB, version="11.7.2").supported
    assert not replace(MARIADB, version="10.5.20").supported
    assert not replace(MYSQL, version="5.7.44").supported
    assert replace(MYSQL, version="8.0.11").supported


def test_status_source() -> None:
    assert MYSQL.to_dict() == {
        "flavor": "mysql",
        "version": "9.7.4",
        "serverId": 12,
        "serverUuid": "uuid",
        "gtid": True,
    }
    assert MARIADB.to_dict() == {"flavor": "mariadb", "version": "10.11.19", "serverId": 11, "gtid": False}
    assert (MYSQL.log, MARIADB.log) == ("mysql:uuid", "mariadb:11")


def test_profile_by_server() -> None:
    """R1: each server's own name for the bound on a statement, in its unit."""
    assert profile("mariadb", (10, 6, 0), 60)["max_statement_time"] == 60
    assert profile("mysql", (8, 0, 29), 60)["max_execution_time"] == 60_000
    gipk = "show_gipk_in_create_table_and_information_schema"
    assert gipk not in profile("mysql", (8, 0, 29), 60)
    assert gipk in profile("mysql", (8, 0, 30), 60)
    assert gipk not in profile("mariadb", (11, 4, 0), 60)


def _server(facts: ServerFacts, **variables: str) -> Server:
    nothing: Any = None
    return Server(nothing, nothing, facts, variables, "'u'@'%'")


def _results(name: str, facts: ServerFacts, **variables: str) -> list[tuple[Level, Reason]]:
    check = next(c.check for c in CHECKS if c.name == name)
    return [(c.level, c.reason) for c in check(_server(facts, **variables))]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("log_bin", "OFF", Reason.BINLOG_DISABLED),
        ("binlog_format", "STATEMENT", Reason.BINLOG_FORMAT_NOT_ROW),
        ("binlog_row_image", "NOBLOB", Reason.ROW_IMAGE_NOT_FULL),
        ("wsrep_on", "ON", Reason.LOG_INCOMPLETE),
    ],
)
def test_settings(name: str, value: str, reason: Reason) -> None:
    assert _results(name, MARIADB, **{name: value}) == [(Level.FAIL, reason)]
    assert _results(name, MARIADB) == [], "a server without the variable has no such choice"


def test_low_watermarks_of_gtids_need_ordered_commits() -> None:
    """R1: else the set may hold a transaction and lack the one before it on the same row."""
    off = {"binlog_order_commits": "OFF"}
    assert _results("commit_order", MYSQL, **off) == [(Level.FAIL, Reason.LOG_INCOMPLETE)]
    assert [level for level, _ in _results("commit_order", replace(MYSQL, gtid=False), **off)] == [Level.OK]
    assert [level for level, _ in _results("commit_order", MARIADB)] == [Level.OK]


def test_row_metadata_must_be_known() -> None:
    """R9: a server that does not know the variable writes no names and no signs."""
    assert _results("row_metadata", MARIADB) == [(Level.FAIL, Reason.ROW_METADATA_NOT_FULL)]


@pytest.mark.parametrize("table", [TableId("D1", "t1"), TableId("d1", "T1"), TableId("d1", "\u00c4")])
def test_a_name_that_the_log_spells_in_another_way_is_refused(table: TableId) -> None:
    """R10: its changes would pass by unseen. Not on a real server: Linux servers refuse the value
    2, which is for macOS."""
    with pytest.raises(CdcError) as refused:
        check_spelling(table, 2, shown=table)
    assert refused.value.reason is Reason.LOG_INCOMPLETE
    assert str(table).lower() in refused.value.found
    for value in (0, 1):
        check_spelling(table, value, shown=table)
    check_spelling(TableId("d1", "t_1"), 2, shown=TableId("d1", "t_1"))


def test_a_binlog_that_is_in_tablespaces_is_refused_with_its_own_words() -> None:
    check = next(c.check for c in CHECKS if c.name == "storage")
    assert list(check(_server(MARIADB))) == []
    assert list(check(_server(MARIADB, binlog_storage_engine=""))) == []
    (found,) = check(_server(MARIADB, binlog_storage_engine="innodb"))
    assert (found.level, found.reason) == (Level.FAIL, Reason.LOG_INCOMPLETE)
    assert "innodb: the binlog is in tablespaces" in found.found
    assert "--binlog-storage-engine" in found.remedy


def test_versions_that_are_too_old() -> None:
    assert _results("version", replace(MYSQL, version="5.7.44")) == [(Level.FAIL, Reason.SPEC_INVALID)]
    assert [level for level, _ in _results("version", replace(MYSQL, version="8.4.0"))] == [Level.WARN]


@pytest.mark.parametrize(
    ("version", "native", "logged"),
    [
        ("9.7.4", "OFF", True),
        ("9.6.0", "OFF", True),
        ("9.7.4", "ON", False),
        ("9.5.0", "OFF", False),
        ("8.4.3", "OFF", False),
    ],
)
def test_who_logs_cascades(version: str, native: str, logged: bool) -> None:
    server = _server(replace(MYSQL, version=version), innodb_native_foreign_keys=native)
    assert cascades_logged(server) is logged
    assert not cascades_logged(_server(MARIADB))


_CHILD = """CREATE TABLE `child` (
  `id` int(11) NOT NULL COMMENT 'x FOREIGN KEY (a) REFERENCES b ON DELETE CASCADE',
  `p` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`),
  CONSTRAINT `a`b` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON UPDATE CASCADE,
  CONSTRAINT `c` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT `d` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE NO ACTION,
  CONSTRAINT `e` FOREIGN KEY (`p`) REFERENCES `p` (`id`)
) ENGINE=InnoDB COMMENT='FOREIGN KEY (a) ON DELETE CASCADE'"""


def test_cascades_of_a_definition() -> None:
    assert cascades(_CHILD) == [
        "CONSTRAINT `a`b` ON UPDATE CASCADE",
        "CONSTRAINT `c` ON DELETE SET NULL ON UPDATE CASCADE",
    ]


@pytest.mark.parametrize(
    ("retention", "seconds", "level"),
    [(0, 1e9, None), (3600, 60, None), (3600, 2000, Level.WARN), (3600, 4000, Level.FAIL)],
)
def test_the_snapshot_must_end_before_the_log_does(retention: float, seconds: float, level: Level | None) -> None:
    assert [c.level for c in _outlives(retention, seconds)] == ([level] if level else [])


def test_source_of_a_manifest() -> None:
    spec = Spec.model_validate(
        {
            "source": {
                "host": "db.example",
                "credentialsSecretRef": {"name": "account", "usernameKey": "u", "passwordKey": "p"},
                "tls": {"mode": "verify-ca", "caSecretRef": {"name": "ca"}, "clientCertSecretRef": {"name": "pair"}},
            },
            "tables": {"include": ["a"]},
            "sink": {"delta": {"path": "/lake"}},
        }
    )
    source = source_from_spec(spec.source, Path("/secrets"))
    assert (source.host, source.port) == ("db.example", 3306)
    assert (source.username_file, source.password_file) == (Path("/secrets/account/u"), Path("/secrets/account/p"))
    files = Path("/secrets/ca/ca.crt"), Path("/secrets/pair/tls.crt"), Path("/secrets/pair/tls.key")
    assert source.tls == Tls("verify-ca", *files)
    assert pickle.loads(pickle.dumps(source)) == source


@pytest.mark.parametrize(
    ("host", "mode"), [("127.0.0.1", "disabled"), ("localhost", "disabled"), ("db.example", "required")]
)
def test_tls_by_host(host: str, mode: str) -> None:
    spec = {"host": host, "credentialsSecretRef": {"name": "account"}}
    data = {"source": spec, "tables": {"include": ["a"]}, "sink": {"delta": {"path": "/lake"}}}
    assert source_from_spec(Spec.model_validate(data).source, Path("/s")).tls.mode == mode


def _source(host: str, **tls: object) -> Source:
    spec = {"host": host, "credentialsSecretRef": {"name": "account"}, "tls": tls}
    data = {"source": spec, "tables": {"include": ["a"]}, "sink": {"delta": {"path": "/lake"}}}
    return source_from_spec(Spec.model_validate(data).source, Path("/s"))


def test_a_given_authority_means_verification() -> None:
    """On loopback, too; and where the mode only asks for encryption, as a server's own clients have
    it."""
    ca = {"name": "ca"}
    for host in ("db.example", "127.0.0.1"):
        given = _source(host, caSecretRef=ca).tls
        assert (given.mode, given.verified) == ("verify-identity", True)
    assert _source("db.example", caSecretRef=ca, mode="required").tls.verified
    assert not _source("db.example", caSecretRef=ca, mode="disabled").tls.verified
    assert not _source("db.example").tls.verified


def test_who_may_get_the_password_itself_without_verification() -> None:
    assert not _source("db.example").tls.allow_unverified
    assert not _source("127.0.0.1.example").tls.allow_unverified
    assert _source("127.0.0.1").tls.allow_unverified, "no other machine answers there"
    assert _source("db.example", allowUnverified=True).tls.allow_unverified
    with pytest.raises(ValueError, match="a given authority verifies"):
        _source("db.example", allowUnverified=True, caSecretRef={"name": "ca"})


@pytest.mark.parametrize(
    ("tls", "host", "level"),
    [
        (Tls("required"), "db.example", Level.WARN),
        (Tls("required", allow_unverified=True), "db.example", Level.WARN),
        (Tls("disabled"), "127.0.0.1", Level.OK),
        (Tls("verify-ca", Path("/ca")), "db.example", Level.OK),
    ],
)
def test_a_server_that_is_not_verified_is_warned_of(tls: Tls, host: str, level: Level) -> None:
    source = Source(host, 3306, Path("/u"), Path("/p"), tls)
    check = next(c.check for c in CHECKS if c.name == "verification")
    assert [c.level for c in check(replace(_server(MYSQL), source=source))] == [level]


def test_the_second_of_a_files_beginning_travels_with_the_position() -> None:
    position = FilePosition(LogOffset("binlog.000007", 400), MariaDbGtidPos.parse("0-1-5"), 1_700_000_000)
    assert position_from_dict(position.to_dict()) == position
    assert "created" not in FilePosition(LogOffset("binlog.000007", 400)).to_dict()


@pytest.mark.parametrize(("readers", "seconds"), [(1, 100.0), (4, 25.0)])
def test_a_snapshot_is_estimated_by_what_is_read_at_once(readers: int, seconds: float) -> None:
    """And by the tables that are still to be read."""
    tables = [TableCheck(TableId("shop", name), rows=1_000_000) for name in ("orders", "events")]
    left = _unread(tables, {"shop.orders"})
    assert _estimate(SnapshotSpec(), readers, left, 1 << 30) == seconds
    assert _estimate(SnapshotSpec.model_validate({"maxRowsPerSecond": 1000}), readers, left, 1 << 30) == 1000.0
    assert _estimate(SnapshotSpec.model_validate({"maxBytesPerSecond": "1Mi"}), readers, left, 1 << 30) == 1024.0


@pytest.mark.parametrize(
    ("facts", "variables", "found"),
    [
        (MARIADB, {"gtid_binlog_state": "0-1-7,0-2-5"}, "gtid_strict_mode=ON keeps a replica from writes"),
        (MARIADB, {"gtid_binlog_state": "0-1-7", "gtid_strict_mode": "ON"}, "proved to lead on"),
        (MARIADB, {"gtid_binlog_state": "0-1-7,1-1-5"}, "several domains"),
        (replace(MYSQL, gtid=False), {}, "gtid_mode is not ON"),
        (replace(MYSQL, gtid=True), {"replica_preserve_commit_order": "ON"}, "proved to lead on"),
        (
            replace(MYSQL, gtid=True),
            {"slave_preserve_commit_order": "OFF", "slave_parallel_workers": "4"},
            "replica_preserve_commit_order=OFF",
        ),
        (
            replace(MYSQL, gtid=True),
            {"slave_preserve_commit_order": "OFF", "slave_parallel_workers": "0"},
            "proved to lead on",
        ),
    ],
)
def test_what_a_failover_would_do(facts: ServerFacts, variables: dict[str, str], found: str) -> None:
    check = next(c.check for c in CHECKS if c.name == "failover")
    (result,) = check(_server(facts, **variables))
    assert result.level is Level.OK
    assert found in result.found
