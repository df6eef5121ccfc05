"""Commands that change the spec: pause, resume, restart, resnapshot.

Why it is right: a change is a merge patch of the fields that it is about. A nonce is made from the
one before it, and a list is replaced as a whole, so such a patch names the version that it was made
from, and is made again where the resource has changed since: no request of another is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import yaml

from cdcsync_core.errors import Reason, fail
from cdcsync_core.quoting import visible
from cdcsync_core.resource.spec import API_VERSION, KIND
from cdcsync_core.runs.run import ExitCode
from cdcsync_kube.client import MANAGER, ApiError, Object
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs, resource_of
from cdcsync_operator.cli.kubectl.options import of_cluster, print_option
from cdcsync_operator.cli.views.output import Output

_ATTEMPTS = 10
#: managers of fields that apply what Git has
_APPLIERS = ("argocd", "kustomize-controller", "flux", "fleet")


@click.command()
@click.argument("name")
@print_option
@of_cluster
def pause(output: Output, syncs: ClusterSyncs, name: str, as_patch: bool) -> ExitCode:
    """Stop the runs of the CdcSync NAME and keep everything."""
    return _change(output, syncs, name, lambda _: {"state": "paused"}, as_patch=as_patch)


@click.command()
@click.argument("name")
@print_option
@of_cluster
def resume(output: Output, syncs: ClusterSyncs, name: str, as_patch: bool) -> ExitCode:
    """Let the CdcSync NAME go on from its positions."""
    return _change(output, syncs, name, lambda _: {"state": "running"}, as_patch=as_patch)


@click.command()
@click.argument("name")
@print_option
@of_cluster
def restart(output: Output, syncs: ClusterSyncs, name: str, as_patch: bool) -> ExitCode:
    """Start the runs of the CdcSync NAME again, also one that is stalled; raises
    spec.restartNonce."""

    def raised(sync: Object) -> Object:
        return {"restartNonce": int(sync["spec"].get("restartNonce") or 0) + 1}

    return _change(output, syncs, name, raised, as_patch=as_patch)


@click.command()
@click.argument("name")
@click.argument("tables", nargs=-1, metavar="[DATABASE.TABLE]...")
@click.option("--matching", default="", metavar="PATTERN", help="All tables whose names match (RE2), in their place.")
@print_option
@of_cluster
def resnapshot(
    output: Output, syncs: ClusterSyncs, name: str, tables: tuple[str, ...], matching: str, as_patch: bool
) -> ExitCode:
    """Read tables of the CdcSync NAME again, while their previous content serves and others go on;
    raises nonces of spec.resnapshot."""
    if bool(tables) == bool(matching):
        raise fail(
            Reason.SPEC_INVALID,
            "both tables and --matching" if tables else "neither tables nor --matching",
            needed="one of both",
            remedy="name tables as database.table, or give --matching '.*' for all of them",
        )

    def raised(sync: Object) -> Object:
        check_names(output, syncs, sync, tables)
        change = {"resnapshot": _with_nonces(sync, tables, matching)}
        resource_of(sync | {"spec": sync["spec"] | change})  # the API server checks no pattern
        return change

    return _change(output, syncs, name, raised, as_patch=as_patch)


def check_names(output: Output, syncs: ClusterSyncs, sync: Object, tables: tuple[str, ...]) -> None:
    """Raises SpecInvalid for a name that is no table's; where the user may not read all names, it
    only warns."""
    status = syncs.all_tables(sync)
    names = {t.name for t in status.table_status}
    unknown = ", ".join(visible(table) for table in tables if table not in names)
    if not unknown:
        return
    if status.tables.total + status.tables.unassigned > len(names):
        output.warn(
            f"{unknown}: perhaps no table of this CdcSync; some names are in ConfigMaps that you may not read, "
            "or that do not fit the status"
        )
        return
    raise fail(
        Reason.SPEC_INVALID,
        f"{unknown}: no table of this CdcSync",
        remedy="`kubectl cdcsync tables` lists them",
    )


def _with_nonces(sync: Object, tables: tuple[str, ...], matching: str) -> list[Object]:
    """The list with a larger nonce for each: than all that name or match the table, and, for a
    pattern, than all there are."""
    entries = [dict(entry) for entry in sync["spec"].get("resnapshot") or []]
    spec = resource_of(sync).spec
    if matching:
        most = max((int(entry["nonce"]) for entry in entries), default=0)
        return _put(entries, "tables", matching, most + 1)
    for table in tables:
        entries = _put(entries, "table", table, spec.nonce(table) + 1)
    return entries


def _put(entries: list[Object], key: str, name: str, nonce: int) -> list[Object]:
    others = [entry for entry in entries if entry.get(key) != name]
    return [*others, {key: name, "nonce": nonce}]


def _change(
    output: Output, syncs: ClusterSyncs, name: str, spec: Callable[[Object], Object], *, as_patch: bool
) -> ExitCode:
    send(output, syncs, name, spec, as_patch=as_patch)
    return ExitCode.DONE


def send(
    output: Output, syncs: ClusterSyncs, name: str, spec: Callable[[Object], Object], *, as_patch: bool
) -> Object | None:
    """Changes fields of the spec, or prints that as a patch; the resource as it is then, None where
    it was not changed."""
    for _ in range(_ATTEMPTS):
        sync = syncs.get(name)
        change = spec(sync)
        if as_patch:
            _print_patch(output, sync, change)
            return None
        # a state is set whatever was there; what is made from what was there holds for that alone
        version = {} if "state" in change else {"resourceVersion": sync["metadata"]["resourceVersion"]}
        try:
            changed = syncs.change(name, {"metadata": version, "spec": change})
        except ApiError:  # the resource has changed since it was read
            continue
        _report(output, changed, change)
        return changed
    raise fail(
        Reason.SPEC_INVALID,
        f"{syncs.namespace}/{name} was changed by others at each of {_ATTEMPTS} attempts",
        remedy="try again",
    )


def _print_patch(output: Output, sync: Object, change: Object) -> None:
    """A part of the resource, as a merge patch and as a patch of kustomize."""
    about = {k: sync["metadata"][k] for k in ("name", "namespace")}
    patch: dict[str, Any] = {"apiVersion": applied_version(sync), "kind": KIND, "metadata": about, "spec": change}
    output.data(patch, lambda console: console.print(yaml.safe_dump(patch, sort_keys=False).rstrip(), markup=False))


def applied_version(sync: Object) -> str:
    """The version of the manifest, as a patch of kustomize has to name it: of what was applied
    last, else of the last change of the spec that this program did not make."""
    entries = sync["metadata"].get("managedFields") or []
    of_spec = [e for e in entries if "f:spec" in (e.get("fieldsV1") or {}) and e.get("manager") != MANAGER]
    of_spec.sort(key=lambda e: (e.get("operation") == "Apply", str(e.get("time"))))
    return str(of_spec[-1]["apiVersion"]) if of_spec else API_VERSION


def _report(output: Output, changed: Object, change: Object) -> None:
    about = changed["metadata"]
    name = f"{about['namespace']}/{about['name']}"
    fields = ", ".join(f"spec.{field}" for field in change)
    data = {"namespace": about["namespace"], "name": about["name"], "generation": about["generation"], "spec": change}
    output.data(data, lambda console: console.print(f"{name}: {fields} changed", markup=False))
    managers = {str(entry.get("manager")) for entry in about.get("managedFields") or []}
    appliers = sorted(m for m in managers if any(word in m.lower() for word in _APPLIERS))
    if appliers:
        output.warn(
            f"{', '.join(appliers)} applies this resource and may take the change back; commit what --print prints"
        )
