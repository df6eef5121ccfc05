"""The demo's folder: what is where in it, that it is ours, and that one demo at a time uses it.

<folder>/cdcsync-demo.marker   marks the folder as a demo's; locked (flock) while one runs
<folder>/mariadb/              the server's data, removed at the end
<folder>/shop.yaml             the example's manifest with this demo's host, port and folder
<folder>/secret.yaml           the account of this demo's server, readable by this user only
<folder>/state/                the sync's status and logs
<folder>/lake/                 the tables
<folder>/catalog.db            the catalog of Iceberg tables
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cdcsync_core.errors import Reason, fail
from cdcsync_core.resource.manifest import SECRET_LABEL, read_yaml
from cdcsync_core.resource.spec import KIND
from cdcsync_operator.reconcile.files import write_atomically

#: a copy of `examples/shop.yaml`, which a wheel has, too
_EXAMPLE = Path(__file__).with_name("examples") / "shop.yaml"


@dataclass(frozen=True)
class DemoFolder:
    root: Path

    @property
    def marker(self) -> Path:
        return self.root / "cdcsync-demo.marker"

    @property
    def datadir(self) -> Path:
        return self.root / "mariadb"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def catalog(self) -> Path:
        return self.root / "catalog.db"

    @property
    def manifest(self) -> Path:
        return self.root / "shop.yaml"

    @property
    def secret(self) -> Path:
        return self.root / "secret.yaml"

    def shown(self, path: Path) -> str:
        """For people: relative to the folder where they started the demo."""
        return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

    def write_manifest(self, host: str, port: int, user: str, password: str, sink: str = "delta") -> None:
        """The example with what is different here, and its Secret in a file of its own."""
        resource = example_resource()
        resource["spec"]["source"] |= {"host": host, "port": port}
        resource["spec"]["sink"] = self._sink(sink)
        name = resource["spec"]["source"]["credentialsSecretRef"]["name"]
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {SECRET_LABEL: "true"}},
            "stringData": {"username": user, "password": password},
        }
        write_atomically(self.manifest, yaml.safe_dump(resource, sort_keys=False))
        write_atomically(self.secret, yaml.safe_dump(secret, sort_keys=False), mode=0o600)

    def _sink(self, kind: str) -> dict[str, Any]:
        if kind == "iceberg":
            catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{self.catalog}", "warehouse": str(self.lake)}
            return {"iceberg": {"catalog": catalog}}
        return {"delta": {"path": str(self.lake)}}


def example_resource() -> dict[str, Any]:
    """The CdcSync of `examples/shop.yaml`."""
    return next(d for d in read_yaml(_EXAMPLE.read_text(encoding="utf-8")) if d["kind"] == KIND)


@contextmanager
def open_folder(root: Path) -> Iterator[DemoFolder]:
    """The folder, emptied of what the last demo left. Raises SpecInvalid if a demo uses it now, or
    if no demo created it."""
    folder = DemoFolder(root.resolve())
    if folder.root.exists() and any(folder.root.iterdir()) and not folder.marker.is_file():
        raise fail(
            Reason.SPEC_INVALID,
            f"found files in {folder.root} that no demo made",
            needed="an empty folder, or none",
            remedy="give another one: cdcsync demo --folder FOLDER",
        )
    folder.root.mkdir(parents=True, exist_ok=True)
    with folder.marker.open("a") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise fail(
                Reason.SPEC_INVALID,
                f"found another demo that uses {folder.root}",
                needed="one at a time",
                remedy="wait for it, or give another one: cdcsync demo --folder FOLDER",
            ) from None
        _empty(folder)
        yield folder


def _empty(folder: DemoFolder) -> None:
    for path in folder.root.iterdir():
        if path == folder.marker:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
