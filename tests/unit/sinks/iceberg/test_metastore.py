"""The connection to a Hive metastore: answers are bounded in time and size, and what is no answer
of the interface is an error that names the metastore."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.iceberg.catalog import metastore
from cdcsync_spark.sinks.iceberg.catalog.hive import HiveCatalog
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores

TABLE = CatalogTableName(("shop",), "orders")
#: the head of an answer to `get_table`: strict binary protocol, a reply
REPLY = struct.pack("!II9sI", 0x80010002, 9, b"get_table", 0)
#: the table of an answer, its storage, and the head of the list of its columns
LIST = b"\x0c\x00\x00" + b"\x0c\x00\x07" + b"\x0f\x00\x01\x0c"


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The uri of a server that answers each request by `answer`."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.recv(2**16)
                    answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    with closing(server):
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


def dripping(connection: socket.socket) -> None:
    """A byte now and then, so that no wait for a single one is long."""
    for byte in REPLY + b"\x0c\x00\x00" + b"\x0b\x00\x01\x00\x10\x00\x00" + b"x" * 4096:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


ANSWERS: dict[str, Callable[[socket.socket], None]] = {
    "nothing": lambda connection: None,
    "no Thrift": lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "an end in the middle": lambda connection: connection.sendall(REPLY[:10]),
    "a long text": lambda connection: connection.sendall(struct.pack("!II", 0x80010002, 2**31 - 1) + b"x" * 100),
    "a list without end": lambda connection: connection.sendall(REPLY + LIST + struct.pack("!I", 2**31 - 1)),
    "a negative list": lambda connection: connection.sendall(REPLY + LIST + struct.pack("!i", -5)),
    "deep": lambda connection: connection.sendall(REPLY + b"\x0c\x00\x63" * 100_000),
    "drips": dripping,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_no_answer_is_an_error_in_time(answer: str, tmp_path: Path) -> None:
    with answering(ANSWERS[answer]) as uri:
        catalog = HiveCatalog(uri, str(tmp_path), TableStores(folder=str(tmp_path)), 1.0)
        with pytest.raises(CdcError, match=f'the metastore {uri} did not give the table "shop.orders"') as error:
            catalog.load(TABLE)
    assert error.value.reason is Reason.SINK_UNREACHABLE


def located(place: str) -> Callable[[socket.socket], None]:
    """Answers `get_table` by an Iceberg table whose newest metadata are at `place`."""
    parameters = {"table_type": "ICEBERG", "metadata_location": place}
    texts = b"".join(struct.pack("!I", len(t)) + t.encode() for pair in parameters.items() for t in pair)
    fields = b"\x0d\x00\x09\x0b\x0b" + struct.pack("!I", len(parameters)) + texts
    return lambda connection: connection.sendall(REPLY + b"\x0c\x00\x00" + fields + b"\x00\x00")


@pytest.mark.parametrize(
    "place", ["/etc/metadata/passwd", "file:{0}/../x/metadata/a", "{0}/%2e%2e/metadata/a", "http://host/x/metadata/a"]
)
def test_no_folder_outside_of_the_warehouse_is_read(place: str, tmp_path: Path) -> None:
    with answering(located(place.format(tmp_path))) as uri:
        catalog = HiveCatalog(uri, str(tmp_path), TableStores(folder=str(tmp_path)), 60.0)
        with pytest.raises(CdcError, match="the catalog puts a table at") as error:
            catalog.load(TABLE)
    assert error.value.reason is Reason.SPEC_INVALID


@pytest.mark.parametrize("place", ["{0}/orders/metadata/..", "{0}/orders/elsewhere/a", "{0}/orders/metadata/a/b", "x"])
def test_what_is_no_place_of_metadata_is_a_conflict(place: str, tmp_path: Path) -> None:
    with answering(located(place.format(tmp_path))) as uri:
        catalog = HiveCatalog(uri, str(tmp_path), TableStores(folder=str(tmp_path)), 60.0)
        with pytest.raises(CdcError) as error:
            catalog.load(TABLE)
    assert error.value.reason in (Reason.SINK_CONFLICT, Reason.SPEC_INVALID)


def exception(number: int, text: bytes) -> Callable[[socket.socket], None]:
    """Answers `get_table` by the exception that is its result's field of this number."""
    thrown = struct.pack("!BHBHI", 12, number, 11, 1, len(text)) + text + b"\x00\x00"
    return lambda connection: connection.sendall(REPLY + thrown)


def test_an_exception_of_the_interface_has_its_reason_and_text(tmp_path: Path) -> None:
    """Its classes cannot be changed, so they must not pass what sets their traceback."""
    with answering(exception(1, b"out of order")) as uri:
        catalog = HiveCatalog(uri, str(tmp_path), TableStores(folder=str(tmp_path)), 60.0)
        with pytest.raises(CdcError, match=r'did not give the table "shop.orders": "out of order"') as error:
            catalog.load(TABLE)
    assert error.value.reason is Reason.SINK_UNREACHABLE
    with answering(exception(2, b"no such table")) as uri:
        assert HiveCatalog(uri, str(tmp_path), TableStores(folder=str(tmp_path)), 60.0).load(TABLE) is None


def test_an_answer_is_read_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last field that the interface has not is skipped, however long it is."""
    monkeypatch.setattr(metastore, "ANSWER_BYTES", 1000)
    field = b"\x0b\x00\x63\x00\x00\x01\x00" + b"x" * 256
    with answering(lambda connection: connection.sendall(REPLY + field * 10)) as uri:
        catalog = HiveCatalog(uri, str(tmp_path), TableStores(folder=str(tmp_path)), 60.0)
        with pytest.raises(CdcError, match="its answer has more than 1000 bytes"):
            catalog.load(TABLE)


def test_a_metastore_that_is_down_is_unreachable(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    catalog = HiveCatalog(f"thrift://127.0.0.1:{port}", str(tmp_path), TableStores(folder=str(tmp_path)), 5.0)
    with pytest.raises(CdcError) as error:
        catalog.check()
    assert error.value.reason is Reason.SINK_UNREACHABLE
