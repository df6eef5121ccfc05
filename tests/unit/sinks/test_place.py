"""Names to folders (injective, inside the lake), and the words for what a store does wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.place import Place, segment


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
        Place.parse(path)
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
    place = Place.parse(path)
    assert (place.scheme, place.root) == (scheme, root)


def test_a_relative_folder_is_fixed_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Place.parse("lake").root == str(tmp_path / "lake")


def secret(tmp_path: Path, **values: str) -> str:
    for name, value in values.items():
        (tmp_path / name).write_text(value + "\n")
    return str(tmp_path)


def test_credentials_are_read_at_use_and_never_shown(tmp_path: Path) -> None:
    folder = secret(tmp_path, AWS_ACCESS_KEY_ID="AKIAEXAMPLE", AWS_SECRET_ACCESS_KEY="very/secret")
    place = Place.parse("s3://bucket/x", "http://127.0.0.1:9", "eu-central-1", folder)
    assert place.storage_options()["AWS_SECRET_ACCESS_KEY"] == "very/secret"
    assert place.storage_options()["AWS_ALLOW_HTTP"] == "true"
    assert "secret/" not in repr(place)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("rotated")
    assert place.storage_options()["AWS_SECRET_ACCESS_KEY"] == "rotated"
    error = place.error(OSError("403 for AKIAEXAMPLE with rotated"), "a.b", "committing")
    assert "AKIAEXAMPLE" not in error.message
    assert "rotated" not in error.message


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    with pytest.raises(CdcError, match="no Secret 'lake'"):
        Place.parse("s3://bucket/x", secret_dir=str(tmp_path / "lake")).storage_options()


@pytest.mark.parametrize(
    ("error", "reason", "word"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Reason.SINK_UNREACHABLE, "free space"),
        (OSError(errno.EACCES, "Permission denied"), Reason.PRIVILEGE_MISSING, "grant"),
        (OSError(errno.EROFS, "Read-only file system"), Reason.PRIVILEGE_MISSING, "grant"),
        (OSError("Generic S3 error: ... <Code>AccessDenied</Code>"), Reason.PRIVILEGE_MISSING, "grant"),
        (OSError("Generic S3 error: error sending request: connection refused"), Reason.SINK_UNREACHABLE, "reachable"),
    ],
)
def test_a_stores_errors_say_what_to_do(error: Exception, reason: Reason, word: str) -> None:
    told = Place.parse("/lake").error(error, "shop.orders", "staging rows")
    assert told.reason is reason
    assert word in told.remedy
    assert told.table == "shop.orders"


def test_a_file_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    place = Place.parse(str(tmp_path))

    class Stop(Exception):
        pass

    def stopped_in_the_middle() -> None:
        with place.new_file("sub/half") as path:
            path.write_bytes(b"half")
            raise Stop

    with pytest.raises(Stop):
        stopped_in_the_middle()
    with place.new_file("sub/whole") as path:
        path.write_bytes(b"whole")
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["whole"]


@pytest.mark.parametrize(("there", "ours"), [(b"mine", True), (b"another one's", False)])
def test_a_link_that_was_made_and_whose_answer_was_lost(
    there: bytes, ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system asks again and is told that the name is taken: then the content decides."""

    def lost(_: Path, target: Path) -> None:
        target.write_bytes(there)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", lost)
    assert Place.parse(str(tmp_path)).put_new("log/1.json", b"mine") is ours
    assert [f.name for f in (tmp_path / "log").iterdir()] == ["1.json"]
