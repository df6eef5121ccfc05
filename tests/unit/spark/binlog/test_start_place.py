"""What a refused start shows of the spec's texts and the server's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.start_spec import Start
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.search.start_place import StartPlace


@pytest.mark.parametrize("files", [[], ["\x1b[2Jb" + "x" * 100_000 + ".000001", "\u202eb.000002"]])
def test_names_of_files_are_shown_as_data(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StartPlace, "_files", lambda _: files)
    server: Any = SimpleNamespace(flavor="mysql")
    place = StartPlace(Source("h", 1, Path("u"), Path("p")), server)
    start = Start.model_validate({"from": "position", "file": "\u202eno\x1b[2J.000001", "offset": 4})
    with pytest.raises(CdcError) as refused:
        place.find(start)
    assert refused.value.reason is Reason.START_UNAVAILABLE
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 2000
