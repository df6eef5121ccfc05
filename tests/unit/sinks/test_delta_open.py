"""Opening a Delta log that has no end, or more of it than memory has room for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.delta import open as opening
from cdcsync_spark.sinks.delta.log import Log, entry_name
from cdcsync_spark.sinks.delta.open import catch_up, open_view
from cdcsync_spark.sinks.delta.view import TableView

_SCHEMA = json.dumps({"type": "struct", "fields": []})
_FIRST = json.dumps({"metaData": {"id": "x", "schemaString": _SCHEMA, "configuration": {}}}).encode()


def _log(last: int, entry: bytes) -> Log:
    """Entries up to `last`, of which the listing names the first two."""
    files: Any = None

    def read(path: str) -> bytes | None:
        version = int(path.rpartition("/")[2].removesuffix(".json"))
        return None if version > last else entry if version else _FIRST

    names = [entry_name(n).rpartition("/")[2] for n in (0, 1)]
    return Log(files, "t", read, lambda path: read(path) is not None, lambda _: names)


def test_entries_without_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_ENTRIES", 100)
    entry = b'{"commitInfo": {"operation": "OPTIMIZE"}}\n'
    view = open_view(_log(99, entry))
    assert view is not None
    assert view.version == 99
    assert catch_up(_log(199, entry), view) == 100
    for use in (lambda: open_view(_log(10**9, entry)), lambda: catch_up(_log(10**9, entry), TableView(5))):
        with pytest.raises(CdcError, match="more than 100 entries") as found:
            use()
        assert found.value.reason is Reason.SINK_CONFLICT


def test_entries_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them could be read."""
    entry = b'{"commitInfo": {"operation": "OPTIMIZE", "x": "' + bytes(1000).hex().encode() + b'"}}\n'
    monkeypatch.setattr(opening, "LARGEST_READ", 10 * len(entry))
    assert open_view(_log(8, entry)) is not None
    with pytest.raises(CdcError, match="bytes, to be read"):
        open_view(_log(12, entry))
