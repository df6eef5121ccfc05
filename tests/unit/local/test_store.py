"""The state file: JSON that is YAML, too; what is not JSON is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.manifest import load_manifest
from cdcsync_core.runs.status import Status, with_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import LocalResourceStore, ManifestFiles, read_state

MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: login, labels: {cdcsync.io/source: "true"}}
stringData: {username: cdc, password: secret}
---
apiVersion: cdcsync.io/v1alpha1
kind: CdcSync
metadata: {name: shop}
spec:
  source: {host: 127.0.0.1, credentialsSecretRef: {name: login}}
  tables: {include: ['shop\\..*']}
  sink: {delta: {path: ./lake}}
"""
#: what JSON leaves as it is: DEL, a C1 control, NEL, a byte order mark, no character, an emoji
AWKWARD = "a\x7fb\x85c\x9bd\ufeffe\uffffé😀\n\"'"


@pytest.fixture
def store(tmp_path: Path) -> tuple[LocalResourceStore, StateFolder]:
    (tmp_path / "shop.yaml").write_text(MANIFEST)
    folder = StateFolder(tmp_path, "default", "shop")
    folder.create()
    files = ManifestFiles([str(tmp_path / "shop.yaml")])
    return LocalResourceStore(
        files, folder, load_manifest([MANIFEST]), lambda _: None, lambda error: pytest.fail(str(error))
    ), folder


def test_a_status_is_read_as_it_was_written_as_yaml_too(store: tuple[LocalResourceStore, StateFolder]) -> None:
    local, folder = store
    status = with_tables(Status(), [TableStatus(name=f"shop.{AWKWARD}", message=AWKWARD)])
    local.save(status)
    assert read_state(folder)[2] == status
    assert yaml.safe_load(folder.state_file.read_text())["status"] == status.to_dict()


def test_people_find_each_table_in_a_line_of_its_own(store: tuple[LocalResourceStore, StateFolder]) -> None:
    local, folder = store
    local.save(with_tables(Status(), [TableStatus(name="shop.b", message="x\ny"), TableStatus(name="shop.a", rows=7)]))
    lines = folder.state_file.read_text().splitlines()
    shown = [yaml.safe_load(line.removesuffix(",")) for line in lines if line.startswith('{"name"')]
    assert [(t["name"], t["rows"], t["message"]) for t in shown] == [("shop.a", 7, ""), ("shop.b", 0, "x\ny")]


def test_a_state_file_that_is_not_json_is_refused_with_what_to_do(
    store: tuple[LocalResourceStore, StateFolder],
) -> None:
    local, folder = store
    local.save(with_tables(Status(), [TableStatus(name="shop.orders")]))
    data = yaml.safe_load(folder.state_file.read_text())
    folder.state_file.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    with pytest.raises(CdcError, match="delete it: everything in it is found again in the targets"):
        read_state(folder)
