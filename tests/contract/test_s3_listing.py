"""A listing of a folder in an object store, which has no folders."""

from __future__ import annotations

import uuid
from pathlib import Path

from contract.stores import S3Server


def test_a_listing_has_files_and_folders(s3: S3Server, tmp_path: Path) -> None:
    """A file counts where a folder has its name."""
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    s3.make_bucket(bucket)
    store = s3.store(bucket, tmp_path)
    for name in ("t/a", "t/b/c", "t/b/d/e", "t/f", "tt/g", "t/f/h"):
        assert store.put_new(name, b"1")
    found = store.listed("t")
    assert {name for name, written in found.items() if written} == {"a", "f"}
    assert {name for name, written in found.items() if written is None} == {"b"}
    assert store.listed("none") == {}
    store.delete_folder("t")
    assert (store.listed("t"), list(store.listed("tt"))) == ({}, ["g"])
