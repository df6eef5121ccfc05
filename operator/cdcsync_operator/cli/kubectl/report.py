"""`kubectl cdcsync report`: a bundle to be handed to who helps, without secrets (see
`redaction`)."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import yaml

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.runs.run import ExitCode
from cdcsync_kube.client import ApiError, Object
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs
from cdcsync_operator.cli.kubectl import redaction
from cdcsync_operator.cli.kubectl.options import of_cluster
from cdcsync_operator.cli.views.output import Output

_EVENTS, _LINES = 500, 20_000


@click.command()
@click.argument("name")
@click.option("--to", "path", default=None, type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@of_cluster
def report(output: Output, syncs: ClusterSyncs, name: str, path: Path | None) -> ExitCode:
    """Write a bundle for who helps with the CdcSync NAME: resource, status, tables, events, pods
    and logs. It has no Secret, and no value of a variable, an annotation, sparkConf or properties;
    names of hosts, tables and columns, and statements that changed tables, are in it."""
    sync = syncs.get(name)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = path or Path(f"cdcsync-{syncs.namespace}-{name}-{stamp}.tar.gz")
    try:
        contents = _write(target, _texts(syncs, sync))
    except OSError as error:
        raise fail(
            Reason.SPEC_INVALID, f"{target} cannot be written: {error}", remedy="give another file by --to"
        ) from None
    missing = [title for title in contents if title.endswith(".missing")]
    output.data(
        {"file": str(target), "contents": sorted(contents)}, lambda console: console.print(str(target), markup=False)
    )
    if missing:
        output.warn(f"not in it, because you may not read them: {', '.join(sorted(missing))}")
    return ExitCode.DONE


def _texts(syncs: ClusterSyncs, sync: Object) -> Iterator[tuple[str, str]]:
    """File names and texts; what the user may not read is missing, and says so."""
    for title, text in _parts(syncs, sync):
        try:
            yield title, text()
        except (CdcError, ApiError) as error:
            yield f"{title}.missing", redaction.of_text(f"{error}\n")


def _parts(syncs: ClusterSyncs, sync: Object) -> Iterator[tuple[str, Callable[[], str]]]:
    """File names and what gives their text; each may be refused by itself."""
    name = sync["metadata"]["name"]
    yield "versions.json", lambda: _json(_versions(syncs))
    yield "cdcsync.yaml", lambda: yaml.safe_dump(redaction.of_sync(sync), sort_keys=False)
    yield "tables.json", lambda: _json(_tables(syncs, sync))
    yield "events.json", lambda: _json([redaction.of_event(e) for e in syncs.events(name, _EVENTS)])
    for part in ("driver", "kept-driver", "executor"):
        yield from _of_pods(syncs, name, part)


def _of_pods(syncs: ClusterSyncs, name: str, part: str) -> Iterator[tuple[str, Callable[[], str]]]:
    try:
        pods = syncs.pods(name, part)
    except CdcError as error:
        text = str(error)
        yield f"pods/{part}.missing", lambda: redaction.of_text(f"{text}\n")
        return
    container = "executor" if part == "executor" else "driver"
    for pod in pods:
        title = str(pod["metadata"]["name"])
        yield f"pods/{title}.json", lambda pod=pod: _json(redaction.of_pod(pod))  # type: ignore[misc]
        yield f"logs/{title}.log", lambda title=title: redaction.of_text(syncs.log(title, container, _LINES))  # type: ignore[misc]


def _versions(syncs: ClusterSyncs) -> dict[str, Any]:
    return {"command": version("cdcsync"), "cluster": syncs.api.get("/version").get("gitVersion")}


def _tables(syncs: ClusterSyncs, sync: Object) -> list[Any]:
    tables = syncs.all_tables(sync).table_status
    return [redaction.of_object(t.model_dump(by_alias=True, mode="json")) for t in tables]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _write(target: Path, texts: Iterator[tuple[str, str]]) -> list[str]:
    """Readable by its owner alone: it names hosts and tables. One text is held at a time. An
    interrupted one leaves a file of another name."""
    folder, making, names = target.name.removesuffix(".tar.gz"), target.with_name(f"{target.name}.part"), []
    making.unlink(missing_ok=True)
    making.touch(mode=0o600)
    with tarfile.open(making, "w:gz") as archive:
        for name, text in texts:
            data = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
            names.append(name)
    making.replace(target)
    return names
