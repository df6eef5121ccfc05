"""AWS Glue: what each of its answers means, and that no change is sent twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.iceberg.catalog.glue import GlueCatalog, GlueSettings
from cdcsync_spark.sinks.iceberg.catalog.glue_columns import glue_columns
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from support.json_answers import JsonAnswers

TABLE = CatalogTableName(("shop",), "orders")
ENTRY = {"Name": "orders", "VersionId": "7", "Parameters": {"table_type": "ICEBERG", "metadata_location": "/lake/a"}}
AFTER = {"location": "/lake", "current-schema-id": 0, "schemas": [{"schema-id": 0, "fields": []}]}


def error(kind: str, status: int = 400) -> tuple[int, object]:
    return status, {"__type": f"com.amazonaws.glue#{kind}", "Message": f"it is {kind}"}


@pytest.fixture
def server() -> Iterator[JsonAnswers]:
    with JsonAnswers() as answers:
        yield answers


@pytest.fixture
def catalog(server: JsonAnswers, tmp_path: Path) -> GlueCatalog:
    (tmp_path / "username").write_text("AKIDEXAMPLE")
    (tmp_path / "password").write_text("hidden-secret")
    login = SigV4(tmp_path / "username", tmp_path / "password", "eu-central-1")
    return GlueCatalog(GlueSettings(server.url(), login, seconds=20), "/lake", TableStores(folder="/lake"))


def test_a_key_that_aws_repeats_is_not_shown(server: JsonAnswers, tmp_path: Path) -> None:
    """An access key's id is no secret where it is in its own key."""
    (tmp_path / "password").write_text("hidden-secret")
    for name in ("AWS_ACCESS_KEY_ID", "other"):
        (tmp_path / name).write_text("AKIDEXAMPLE")
        login = SigV4(tmp_path / name, tmp_path / "password", "eu-central-1")
        other = GlueCatalog(GlueSettings(server.url(), login, seconds=20), "/lake", TableStores(folder="/lake"))
        text = "AKIDEXAMPLE has not hidden-secret"
        server.answers["/"] = [(403, {"__type": "UnrecognizedClientException", "Message": text})]
        with pytest.raises(CdcError) as refused:
            other.load(TABLE)
        assert refused.value.reason is Reason.AUTHENTICATION_FAILED
        assert f"{'***' if name == 'other' else 'AKIDEXAMPLE'} has not ***" in refused.value.message


CHECKED = error("ConcurrentModificationException")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error("ConcurrentModificationException"), CommitLost),
        (error("EntityNotFoundException"), CommitLost),
        (error("InternalServiceException", 500), OutcomeUnknown),
        (error("OperationTimeoutException"), OutcomeUnknown),
        ((502, "<html>"), OutcomeUnknown),
        ((200, "no JSON"), OutcomeUnknown),
        ((200, "[" * 100_000), OutcomeUnknown),
        (error("ThrottlingException"), Reason.SINK_UNREACHABLE),
        ((429, ""), Reason.SINK_UNREACHABLE),
        (error("AccessDeniedException"), Reason.PRIVILEGE_MISSING),
        (error("InvalidSignatureException"), Reason.AUTHENTICATION_FAILED),
        (error("ExpiredTokenException"), Reason.AUTHENTICATION_FAILED),
        (error("InvalidInputException"), Reason.SPEC_INVALID),
        ((403, "no page"), Reason.SPEC_INVALID),
    ],
    ids=str,
)
def test_what_becomes_of_a_commit(
    server: JsonAnswers, catalog: GlueCatalog, answer: tuple[int, object], expected: object
) -> None:
    server.answers["/"] = [(200, {"Table": ENTRY}), CHECKED, answer]
    if isinstance(expected, Reason):
        with pytest.raises(CdcError) as refused:
            catalog.move(TABLE, "/lake/a", AFTER, "/lake/b")
        assert refused.value.reason is expected
        assert "hidden" not in refused.value.message
    else:
        with pytest.raises(expected):  # type: ignore[call-overload]
            catalog.move(TABLE, "/lake/a", AFTER, "/lake/b")
    sent = [asked.headers["X-Amz-Target"].partition(".")[2] for asked in server.asked]
    assert sent == ["GetTable", "UpdateTable", "UpdateTable"], "the first asks for a version that there is not"
    change = json.loads(server.asked[-1].body)
    assert (change["VersionId"], change["SkipArchive"]) == ("7", True)


@pytest.mark.parametrize(
    ("entry", "moved"),
    [
        ((200, {"Table": {**ENTRY, "Parameters": {"table_type": "ICEBERG", "metadata_location": "/lake/c"}}}), False),
        (error("EntityNotFoundException"), False),
    ],
)
def test_nothing_is_sent_for_a_table_that_another_commit_changed(
    server: JsonAnswers, catalog: GlueCatalog, entry: tuple[int, object], moved: bool
) -> None:
    server.answers["/"] = [entry]
    assert catalog.move(TABLE, "/lake/a", AFTER, "/lake/b") is moved
    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", [(200, {"Table": 7}), (200, {"Table": {**ENTRY, "VersionId": "x"}}), (200, {})])
def test_an_answer_of_another_form_is_no_table(
    server: JsonAnswers, catalog: GlueCatalog, answer: tuple[int, object]
) -> None:
    server.answers["/"] = [answer]
    with pytest.raises(CdcError) as refused:
        catalog.move(TABLE, "/lake/a", AFTER, "/lake/b")
    assert refused.value.reason is Reason.SPEC_INVALID


def test_an_account_that_may_not_list_databases_is_one(server: JsonAnswers, catalog: GlueCatalog) -> None:
    server.answers["/"] = [error("AccessDeniedException")]
    catalog.check()
    server.answers["/"] = [error("UnrecognizedClientException")]
    with pytest.raises(CdcError, match="the access key in the Secret") as refused:
        catalog.check()
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED


def test_columns_of_any_type_have_a_form_in_glue() -> None:
    inner = {"type": "struct", "fields": [{"id": 9, "name": "a", "required": True, "type": "long"}]}
    types = ["decimal(9, 2)", "timestamptz", "fixed[16]", {"type": "list", "element": "uuid"}, inner]
    types.append({"type": "map", "key": "string", "value": "time"})
    fields = [{"id": n, "name": f"c{n}", "required": False, "type": kind} for n, kind in enumerate(types)]
    columns = glue_columns({"current-schema-id": 1, "schemas": [{"schema-id": 1, "fields": fields}]})
    shown = ["decimal(9,2)", "timestamp", "binary", "array<string>", "struct<a:bigint>", "map<string,string>"]
    assert [column["Type"] for column in columns] == shown
