"""When Spark starts: at once where it is alone, and with executors only once the source has
answered."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from cdcsync_core.errors import Reason, TransientError
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import RunConfig, RunKind
from cdcsync_spark.engine.prestart import begin

RESOURCE: dict[str, Any] = {
    "apiVersion": "cdcsync.io/v1alpha1",
    "kind": "CdcSync",
    "metadata": {"name": "shop"},
    "spec": {
        "source": {"host": "mysql.invalid", "credentialsSecretRef": {"name": "login"}},
        "tables": {"include": ["shop.*"]},
        "sink": {"delta": {"path": "s3://lake/cdc"}},
    },
}
CLUSTER = {"spark.master": "k8s://https://kubernetes.default.svc:443"}


class Sessions:
    """The sessions that were started, by their settings."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []

    def start(self, *_: Any, **settings: Any) -> SparkSession:
        self.started.append(settings)
        return cast(SparkSession, "session")


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def config(tmp_path: Path, spark: dict[str, str]) -> RunConfig:
    """The source does not answer: there is no such name."""
    (tmp_path / "login").mkdir()
    (tmp_path / "login" / "username").write_text("cdc")
    (tmp_path / "login" / "password").write_text("x")
    return RunConfig("shop-1", 1, RunKind.SNAPSHOT, RESOURCE, (), "", str(tmp_path), str(tmp_path), spark=spark)


def test_no_executor_is_asked_for_while_the_source_does_not_answer(tmp_path: Path, sessions: Sessions) -> None:
    session = begin(config(tmp_path, CLUSTER), start=sessions.start)
    with pytest.raises(TransientError) as caught:
        session.result(600)
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert sessions.started == []


def test_a_session_without_executors_does_not_wait(tmp_path: Path, sessions: Sessions) -> None:
    assert begin(config(tmp_path, {}), start=sessions.start).result(120) == "session"
    assert len(sessions.started) == 1


def test_executors_are_asked_for_once_the_source_answers(tmp_path: Path, sessions: Sessions) -> None:
    order: list[str] = []

    def reach(resource: CdcSync, _: RunConfig) -> None:
        order.append(resource.spec.source.host)
        assert sessions.started == []

    begin(config(tmp_path, CLUSTER), reach, sessions.start).result(120)
    assert order == [RESOURCE["spec"]["source"]["host"]]
    assert sessions.started[0]["cluster"] == CLUSTER


def test_a_verification_starts_no_jvm(tmp_path: Path, sessions: Sessions) -> None:
    verifying, before = replace(config(tmp_path, {}), kind=RunKind.VERIFY), set(threading.enumerate())
    assert not begin(verifying, start=sessions.start).done()
    assert sessions.started == []
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "spark-start"]
