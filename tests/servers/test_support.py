"""The servers that the other tests rely on: they start, log rows with full metadata, and keep
committed rows over a crash."""

from __future__ import annotations

from support.fixtures import FreshDatabase, FreshServer, usually_on
from support.servers import Server


def test_a_write_moves_the_binlog_of_every_server(any_server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))", db=database)
    file, before = any_server.binlog_status()

    any_server.run("INSERT INTO t VALUES (1, 'grün')", db=database)

    assert any_server.binlog_status()[0] == file
    assert any_server.binlog_status()[1] > before
    assert (any_server.binlog_dir / file).stat().st_size == any_server.binlog_status()[1]
    assert any_server.query("SELECT * FROM t", db=database) == [(1, "grün")]


def test_every_server_is_a_fit_source(any_server: Server) -> None:
    settings = any_server.query("SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata")

    assert settings == [(1, "ROW", "FULL", "FULL")]


def test_the_variants_differ_in_how_they_keep_gtids(
    mariadb1011: Server,
    mariadb1011_loose: Server,
    mariadb114: Server,
    mariadb118: Server,
    mysql97_gtid: Server,
    mysql97_nogtid: Server,
) -> None:
    strict = [
        server.query("SELECT @@gtid_strict_mode")[0][0] for server in (mariadb1011, mariadb1011_loose, mariadb114)
    ]
    modes = [server.query("SELECT @@gtid_mode")[0][0] for server in (mysql97_gtid, mysql97_nogtid)]

    assert strict == [1, 0, 1]
    assert modes == ["ON", "OFF"]
    assert [server.version.split(".")[:2] for server in (mariadb1011, mariadb114, mariadb118, mysql97_gtid)] == [
        ["10", "11"],
        ["11", "4"],
        ["11", "8"],
        ["9", "7"],
    ]


@usually_on("mysql97_gtid")
def test_a_crashed_server_comes_back_with_its_rows(any_server: Server, fresh_server: FreshServer) -> None:
    server = fresh_server(any_server.variant, max_binlog_size="1M")
    server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    file, _ = server.binlog_status()

    server.kill()
    assert not server.is_running()
    server.start()

    assert server.query("SELECT id FROM d.t") == [(1,)]
    assert server.binlog_status()[0] > file
    server.restart(binlog_row_image="MINIMAL")
    assert server.query("SELECT @@binlog_row_image, @@max_binlog_size") == [("MINIMAL", 1 << 20)]


def test_an_account_has_the_grants_that_it_was_given(any_server: Server) -> None:
    any_server.create_user("reader", "secret", ["SELECT", "REPLICATION SLAVE"])

    with any_server.connect("reader", password="secret") as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GRANTS")
        assert "SELECT, REPLICATION SLAVE ON *.*" in cursor.fetchall()[0][0]
