"""Names to folders (injective, inside the lake), and the words for what a store does wrong."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.storage.object_store import ObjectStore
from cdcsync_spark.sinks.lake.storage.store import LARGEST_READ
from cdcsync_spark.sinks.lake.storage.stores import open_store
from support.hostile import Hostile


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("Order-Items_2", "Order-Items_2"),
        ("..", "@2E@2E"),
        ("a/b", "a@2Fb"),
        ("a@b", "a@40b"),
        ("%2E", "@252E"),
        ("é", "@C3@A9"),
        (" ", "@20"),
        ("_delta_log", "@5Fdelta_log"),
        ("_delta_logs", "_delta_logs"),
    ],
)
def test_a_name_becomes_a_folder(name: str, folder: str) -> None:
    assert segment(name) == folder


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64), st.text(min_size=1, max_size=64))
def test_folders_are_plain_and_short_and_never_shared(one: str, other: str) -> None:
    other = other.encode("utf-8", "replace").decode()
    assert len(segment(one)) <= 180
    assert segment(one).replace("@", "a").replace("_", "a").replace("-", "a").isalnum()
    assert segment(one).isascii()
    assert (segment(one) == segment(other)) == (one == other)


def test_long_names_that_differ_late_lie_apart() -> None:
    one, other = "名" * 63 + "a", "名" * 63 + "b"
    assert segment(one) != segment(other)
    assert len(segment(one)) <= 180


@pytest.mark.parametrize(
    "path",
    [
        "/lake/%2E",
        "s3://bucket/a%20b",
        "gs://bucket/x",
        "s3://",
        "s3://user:pw@bucket/x",
        "s3://b/../c",
        "s3://b/x?y=1",
        "ftp://x/y",
    ],
)
def test_a_path_that_is_no_lake_is_refused(path: str) -> None:
    with pytest.raises(CdcError) as refused:
        open_store(path)
    assert refused.value.reason is Reason.SPEC_INVALID
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("path", "scheme", "root"),
    [
        ("/lake/cdc/", "file", "/lake/cdc"),
        ("file:///lake/cdc", "file", "/lake/cdc"),
        ("s3://bucket/cdc/", "s3", "bucket/cdc"),
        ("s3a://bucket", "s3", "bucket"),
    ],
)
def test_paths_of_lakes(path: str, scheme: str, root: str) -> None:
    store = open_store(path)
    assert (store.location.scheme, store.location.root) == (scheme, root)


def test_a_relative_folder_is_fixed_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("lake").location.root == str(tmp_path / "lake")


def secret(tmp_path: Path, **values: str) -> str:
    for name, value in values.items():
        (tmp_path / name).write_text(value + "\n")
    return str(tmp_path)


def test_credentials_are_read_at_use_and_never_shown(tmp_path: Path) -> None:
    folder = secret(tmp_path, AWS_ACCESS_KEY_ID="AKIAEXAMPLE", AWS_SECRET_ACCESS_KEY="very/secret")
    store = open_store("s3://bucket/x", "http://127.0.0.1:9", "eu-central-1", folder)
    assert store.storage_options()["AWS_SECRET_ACCESS_KEY"] == "very/secret"
    assert store.storage_options()["AWS_ALLOW_HTTP"] == "true"
    assert "secret/" not in repr(store)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("rotated")
    assert store.storage_options()["AWS_SECRET_ACCESS_KEY"] == "rotated"
    error = store.error(OSError("403 for AKIAEXAMPLE with rotated"), "a.b", "committing")
    assert "AKIAEXAMPLE" not in error.message
    assert "rotated" not in error.message


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    with pytest.raises(CdcError, match="no Secret 'lake'"):
        open_store("s3://bucket/x", secret_dir=str(tmp_path / "lake")).storage_options()


@pytest.mark.parametrize(
    ("error", "reason", "word"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Reason.SINK_UNREACHABLE, "free space"),
        (OSError(errno.EACCES, "Permission denied"), Reason.PRIVILEGE_MISSING, "grant"),
        (OSError(errno.EROFS, "Read-only file system"), Reason.PRIVILEGE_MISSING, "grant"),
        (OSError("Generic S3 error: ... <Code>AccessDenied</Code>"), Reason.PRIVILEGE_MISSING, "grant"),
        (OSError("404: <Code>NoSuchBucket</Code>"), Reason.SINK_UNREACHABLE, "create the bucket"),
        (OSError("400: <Code>AuthorizationHeaderMalformed</Code>"), Reason.SPEC_INVALID, "options.region"),
        (OSError("status: 403 Forbidden: <Code>RequestTimeTooSkewed</Code>"), Reason.SINK_UNREACHABLE, "reachable"),
        (OSError("status: 403 Forbidden: <Code>ExpiredToken</Code>"), Reason.SINK_UNREACHABLE, "reachable"),
        (OSError("Generic S3 error: error sending request: connection refused"), Reason.SINK_UNREACHABLE, "reachable"),
    ],
)
def test_a_stores_errors_say_what_to_do(error: Exception, reason: Reason, word: str) -> None:
    reported = open_store("/lake").error(error, "shop.orders", "staging rows")
    assert reported.reason is reason
    assert word in reported.remedy
    assert reported.table == "shop.orders"


def test_a_file_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))

    class Stop(Exception):
        pass

    def stopped_in_the_middle() -> None:
        with store.new_file("sub/half") as path:
            path.write_bytes(b"half")
            raise Stop

    with pytest.raises(Stop):
        stopped_in_the_middle()
    with store.new_file("sub/whole") as path:
        path.write_bytes(b"whole")
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["whole"]


@pytest.mark.parametrize(("there", "ours"), [(b"mine", True), (b"another one's", False)])
def test_a_link_that_was_made_and_whose_answer_was_lost(
    there: bytes, ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system asks again and the name is taken: then the content
    decides."""

    def lost(_: Path, target: Path) -> None:
        target.write_bytes(there)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", lost)
    store = open_store(str(tmp_path))
    store.make_folder("log")
    assert store.put_new("log/1.json", b"mine") is ours
    assert [f.name for f in (tmp_path / "log").iterdir()] == ["1.json"]


def test_nothing_new_is_put_where_the_folder_was_taken_away(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_store(str(tmp_path)).put_new("log/1.json", b"mine")
    assert not list(tmp_path.iterdir())


class _Careless(BaseHTTPRequestHandler):
    """An object store that takes every put, whatever its conditions."""

    def do_PUT(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        """It knows no deletion of many objects either."""
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def served_by(handler: type[BaseHTTPRequestHandler], folder: Path) -> Iterator[ObjectStore]:
    """A lake in a store that is a thread of this process."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (folder / name).write_text("x")
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield open_store("s3://bucket/cdc", f"http://127.0.0.1:{server.server_port}", "us-east-1", str(folder))
    finally:
        server.shutdown()
        server.server_close()


def test_a_store_that_overwrites_is_refused(tmp_path: Path) -> None:
    """R8 stands on the second of two conditional puts being refused."""
    with (
        served_by(_Careless, tmp_path) as store,
        pytest.raises(CdcError, match="overwrites an object") as refused,
    ):
        store.put_new("_delta_log/0.json", b"mine")
    assert refused.value.reason is Reason.SPEC_INVALID


class _Small(BaseHTTPRequestHandler):
    """An object store with one file and one folder, which deletes what it is asked to."""

    def do_GET(self) -> None:
        self._answer(
            200,
            "<ListBucketResult><IsTruncated>false</IsTruncated>"
            "<Contents><Key>cdc/t/f</Key><Size>1</Size><LastModified>1970-01-02T00:00:00.000Z</LastModified></Contents>"
            "<Contents><Key>cdc/t/sub/g</Key><Size>1</Size><LastModified>1970-01-02T00:00:00.000Z</LastModified></Contents>"
            "</ListBucketResult>",
        )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        keys = "".join(f"<Deleted><Key>cdc/t/{name}</Key></Deleted>" for name in ("f", "sub/g"))
        self._answer(200, f"<DeleteResult>{keys}</DeleteResult>")

    def _answer(self, code: int, body: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        pass


class _Closed(_Small):
    def _answer(self, code: int, body: str) -> None:
        super()._answer(403, "<Error><Code>AccessDenied</Code></Error>")


def test_other_threads_run_while_a_store_is_asked(tmp_path: Path) -> None:
    """This store is one of them: it could not answer, nor would the driver report or end, if the
    caller kept them all."""
    with served_by(_Small, tmp_path) as store:
        assert store.listed("t") == {"f": 86400.0, "sub": None}
        store.delete("t/f")
        store.delete_folder("t")


@pytest.mark.parametrize("ask", [ObjectStore.listed, ObjectStore.delete, ObjectStore.delete_folder])
def test_a_store_that_denies_is_told_from_one_that_is_gone(
    ask: Callable[[ObjectStore, str], object], tmp_path: Path
) -> None:
    with (
        served_by(_Closed, tmp_path) as store,
        pytest.raises(CdcError) as denied,
        store.translating_errors("shop.orders", "maintenance"),
    ):
        ask(store, "t")
    assert denied.value.reason is Reason.PRIVILEGE_MISSING


def test_a_folder_on_a_disk_is_listed_and_removed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert store.listed("t") == {}
    store.delete("t/f")
    store.delete_folder("t")
    (tmp_path / "t/sub").mkdir(parents=True)
    for name in ("t/f", "t/sub/g"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (86400, 86400))
    assert store.listed("t") == {"f": 86400.0, "sub": None}
    store.delete("t/f")
    assert store.listed("t") == {"sub": None}
    store.delete_folder("t")
    assert not list(tmp_path.iterdir())
    (tmp_path / "t").touch()
    with pytest.raises(NotADirectoryError):
        store.listed("t")


def test_a_file_that_would_take_all_memory_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "entry.json").open("wb") as file:
        file.truncate(LARGEST_READ + 1)
    with pytest.raises(CdcError, match=r"entry\.json") as refused:
        open_store(str(tmp_path)).read("entry.json")
    assert refused.value.reason is Reason.SINK_CONFLICT
    assert refused.value.remedy.startswith("raise spec.driver.memory, or spec.stream.driver.memory; or ")


def test_an_object_that_would_take_all_memory_is_not_read(tmp_path: Path) -> None:
    def large(server: Hostile, client: socket.socket) -> None:
        client.recv(65536)
        head = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n'
        server.send(client, head + b"Content-Length: 1000000000000\r\n\r\n")
        while not server.ending.is_set():
            server.send(client, bytes(2**16))

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text("key")
    server = Hostile(large)
    with server.listening() as port, pytest.raises(CdcError, match="1000000000000 bytes") as refused:
        open_store("s3://lake/cdc", f"http://127.0.0.1:{port}", "us-east-1", str(tmp_path)).read("entry.json")
    assert refused.value.reason is Reason.SINK_CONFLICT
    assert server.sent < 64 * 2**20
