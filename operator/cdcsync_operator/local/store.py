"""The resource from YAML files, its status in a file: what an API server does on a cluster.

Why it is right: the files are reread when they change, so a pause, a nonce or a new password
take effect while the sync runs; a manifest that became wrong changes nothing and is reported. The
generation grows whenever the spec differs from the one that is stored with the status, so that a
change between two runs is a change, too.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.manifest import Manifest, load_manifest
from cdcsync_core.resource.spec import CdcSync, Spec
from cdcsync_core.runs.status import Phase, Status, only_tables
from cdcsync_core.runs.status_part import Restarts
from cdcsync_operator.decision.tables.assignment import reset_failure
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.reconcile.files import write_atomically
from cdcsync_operator.reconcile.table_shards import TableShards, is_whole

#: characters that JSON takes as they are and YAML does not, or takes for line breaks
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class ManifestFiles:
    """The `-f` files of a command; `-` is standard input, read once. `continuous`: the stream runs
    all the time, whatever its schedule."""

    def __init__(self, paths: Sequence[str], *, continuous: bool = False) -> None:
        self._continuous = continuous
        self._paths = [Path(p) for p in paths if p != "-"]
        self._fixed = [sys.stdin.read()] if "-" in paths else []
        self._stamp: tuple[Any, ...] = ()

    def load(self) -> Manifest:
        """Raises SpecInvalid for what cannot be read."""
        self._stamp = self._stamps()
        manifest = load_manifest([*self._fixed, *(_read(p) for p in self._paths)])
        return replace(manifest, resource=manifest.resource.without_schedule()) if self._continuous else manifest

    def changed(self) -> bool:
        """Whether a file differs from what `load` read last."""
        return self._stamps() != self._stamp

    def _stamps(self) -> tuple[Any, ...]:
        return tuple(_stamp(p) for p in self._paths)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        about = path.stat()
    except OSError:
        return (0, 0, 0)
    return (about.st_mtime_ns, about.st_size, about.st_ino)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it is not UTF-8 text"
        raise fail(Reason.SPEC_INVALID, f"{path} cannot be read: {reason}", needed="a manifest") from None


class LocalResourceStore:
    """The port `ResourceStore` on files. `on_secrets` gets the Secrets whenever they are read,
    `on_fault` what is wrong with a change."""

    def __init__(
        self,
        files: ManifestFiles,
        folder: StateFolder,
        manifest: Manifest,
        on_secrets: Callable[[Any], None],
        on_fault: Callable[[CdcError], None],
    ) -> None:
        self._files, self._folder = files, folder
        self._on_secrets, self._on_fault = on_secrets, on_fault
        self._shards = TableShards(folder.table_shards)
        self._stored_spec, self._generation, self._status = read_state(folder)
        self._status = _reset_for_new_run(manifest.resource.spec, self._status)
        self._adopt(manifest)

    def changed(self) -> bool:
        """Whether `load` would read the manifest again."""
        return self._files.changed()

    def load(self) -> tuple[CdcSync, Status]:
        if self.changed():
            self._reload()
        return self._resource, self._status

    def save(self, status: Status) -> None:
        self._status = status
        data = self._resource.to_dict()
        self._stored_spec = data["spec"]
        shown = self._shards.write(status)
        tables = [self._shards.text(t) for t in shown.table_status]
        text = _document(data, shown.with_(table_status=()).to_dict(), tables)
        write_atomically(self._folder.state_file, text)

    def refusal(self) -> str:
        """Everything is allowed on one's own machine."""
        return ""

    def missing_secrets(self) -> tuple[str, ...]:
        """None: a manifest without them is not loaded."""
        return ()

    def _reload(self) -> None:
        try:
            manifest = self._files.load()
            if manifest.resource.full_name != self._resource.full_name:
                raise fail(
                    Reason.SPEC_INVALID,
                    f"the manifest renamed to {manifest.resource.full_name} while {self._resource.full_name} runs",
                    needed="the same namespace and name",
                    remedy="end this run and start another one",
                )
            self._adopt(manifest)
        except CdcError as error:
            self._on_fault(error)

    def _adopt(self, manifest: Manifest) -> None:
        spec = manifest.resource.to_dict()["spec"]
        if spec != self._stored_spec:
            self._generation += 1
            self._stored_spec = spec
        metadata = manifest.resource.metadata.model_copy(update={"generation": self._generation})
        self._resource = manifest.resource.model_copy(update={"metadata": metadata})
        self._on_secrets(manifest.secrets)


#: readings of a state file whose tables are not in order, and seconds between them
_TRIES, _PAUSE = 5, 0.2


def read_state(folder: StateFolder) -> tuple[dict[str, Any] | None, int, Status]:
    """The stored spec, its generation and the status; (None, 0, an unseen status) where nothing is
    stored. Raises SpecInvalid."""
    if not folder.state_file.exists():
        return None, 0, Status()
    try:
        for _ in range(_TRIES):  # a controller may be writing the tables just now, and the file after them
            data = json.loads(folder.state_file.read_text(encoding="utf-8"))
            status = TableShards(folder.table_shards).read(Status.model_validate(data["status"]))
            if is_whole(status):
                break
            time.sleep(_PAUSE)
        return data["spec"], int(data["metadata"].get("generation", 1)), status
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"a state file that cannot be read: {folder.state_file} ({type(error).__name__})",
            remedy="delete it: everything in it is found again in the targets",
        ) from None


def _document(resource: dict[str, Any], status: dict[str, Any], tables: list[str]) -> str:
    """YAML in the form of JSON, which takes a small part of the CPU time that PyYAML takes; a line
    for each of the tables, which are JSON already.

    YAML takes fewer characters than JSON as they are (YAML 1.1, 5.1 and 5.4); the others are
    escaped.
    """
    entries = {"tableStatus": "[\n" + ",\n".join(tables) + "\n]"}
    text = _object(_texts(resource) | {"status": _object(_texts(status) | entries)})
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _texts(data: dict[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value, ensure_ascii=False, indent=1) for name, value in data.items()}


def _object(members: dict[str, str]) -> str:
    """A JSON object of members that are JSON."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {text}" for name, text in members.items()) + "\n}"


def _reset_for_new_run(spec: Spec, status: Status) -> Status:
    """A new run is a new attempt, whatever became of the previous one:
    source and sink are judged by a preflight of this run, not by what the last one found."""
    tables = [reset_failure(spec, t) for t in status.table_status]
    phase = Phase.PENDING if status.phase is Phase.FAILED else status.phase
    conditions = tuple(c for c in status.conditions if c.type not in ("SourceReady", "SinkReady"))
    return only_tables(status, tables).with_(phase=phase, restarts=Restarts(), conditions=conditions)
