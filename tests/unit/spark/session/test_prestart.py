"""When Spark starts: at once where it is alone, and with executors only once the source has
answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cdcsync_mysql.connection
from cdcsync_core.errors import Reason, TransientError, fail
from cdcsync_core.run import RunConfig, RunKind
from cdcsync_spark.session import prestart as earlysession

RESOURCE = {
    "apiVersion": "cdcsync.io/v1alpha1",
    "kind": "CdcSync",
    "metadata": {"name": "shop"},
    "spec": {
        "source": {"host": "mysql", "credentialsSecretRef": {"name": "login"}},
        "tables": {"include": ["shop.*"]},
        "sink": {"delta": {"path": "s3://lake/cdc"}},
    },
}
CLUSTER = {"spark.master": "k8s://https://kubernetes.default.svc:443"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What sessions were started with; the source cannot be reached."""
    sessions: list[dict[str, Any]] = []

    @contextmanager
    def refuse(_: object) -> Iterator[None]:
        raise fail(Reason.SOURCE_UNREACHABLE, "nobody answers")
        yield

    monkeypatch.setattr(cdcsync_mysql.connection, "connect", refuse)
    monkeypatch.setattr(earlysession, "start_session", lambda *_, **settings: sessions.append(settings) or "session")
    return sessions


def config(tmp_path: Path, spark: dict[str, str]) -> RunConfig:
    (tmp_path / "login").mkdir()
    (tmp_path / "login" / "username").write_text("cdc")
    (tmp_path / "login" / "password").write_text("x")
    return RunConfig("shop-1", 1, RunKind.SNAPSHOT, RESOURCE, (), "", str(tmp_path), str(tmp_path), spark=spark)


def test_no_executor_is_asked_for_while_the_source_does_not_answer(
    tmp_path: Path, started: list[dict[str, Any]]
) -> None:
    session = earlysession.begin(config(tmp_path, CLUSTER))
    with pytest.raises(TransientError, match="nobody answers"):
        session.result(30)
    assert started == []


def test_a_session_without_executors_does_not_wait(tmp_path: Path, started: list[dict[str, Any]]) -> None:
    assert earlysession.begin(config(tmp_path, {})).result(30) == "session"
    assert len(started) == 1


def test_executors_are_asked_for_once_the_source_answers(
    tmp_path: Path, started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def answer(_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(cdcsync_mysql.connection, "connect", answer)
    earlysession.begin(config(tmp_path, CLUSTER)).result(30)
    assert started[0]["cluster"] == CLUSTER
