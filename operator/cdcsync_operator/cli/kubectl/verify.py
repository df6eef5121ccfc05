"""`kubectl cdcsync verify`: asks for a verification by a run on the cluster, and shows its
result."""

from __future__ import annotations

import re
import time

import click
from rich.console import Console
from rich.table import Table as Grid

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.status import shown_message
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.runs.verification_status import VerificationState, VerificationStatus, VerifiedResult
from cdcsync_kube.client import Object
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs, status_of
from cdcsync_operator.cli.command import duration
from cdcsync_operator.cli.kubectl.changes import check_names, send
from cdcsync_operator.cli.kubectl.options import of_cluster, print_option
from cdcsync_operator.cli.views.output import Output, shown
from cdcsync_operator.cli.views.verify_view import print_grid
from cdcsync_operator.decision.runs.verification import differing_keys

_POLL_SECONDS = 2.0
_CODES = {
    VerificationState.EQUAL: ExitCode.DONE,
    VerificationState.DIFFERENT: ExitCode.DIFFERENCES,
    VerificationState.INCOMPLETE: ExitCode.RETRY,
    VerificationState.FAILED: ExitCode.USER_MUST_ACT,
}


@click.command()
@click.argument("name")
@click.argument("tables", nargs=-1, metavar="[DATABASE.TABLE]...")
@click.option("--wait", callback=duration, metavar="DURATION", help="Wait for the result, for so long at most, as 30m.")
@print_option
@of_cluster
def verify(
    output: Output, syncs: ClusterSyncs, name: str, tables: tuple[str, ...], wait: float | None, as_patch: bool
) -> ExitCode:
    """Compare tables of the CdcSync NAME with the source, all without names, by a run on the
    cluster while both are written; raises the nonce of spec.verify.

    With --wait the exit code is 4 where a table differs, 1 where not all were compared, 3 where no
    run came to its end. Keys and values are shown by `cdcsync verify` with the manifest alone.
    """

    def raised(sync: Object) -> Object:
        check_names(output, syncs, sync, tables)
        return {"verify": {"nonce": _next_nonce(sync), "tables": [_pattern(table) for table in tables]}}

    changed = send(output, syncs, name, raised, as_patch=as_patch)
    if changed is None or wait is None:
        return ExitCode.DONE
    sync, verification = _wait(syncs, name, int(changed["spec"]["verify"]["nonce"]), wait)
    status = syncs.all_tables(sync)
    compared = [t for t in status.table_status if t.verified and t.verified.nonce == verification.nonce]
    data = verification.model_dump(by_alias=True, mode="json")
    results = [{"name": t.name} | t.model_dump(by_alias=True, mode="json")["verified"] for t in compared]
    output.data(data | {"tables": results}, lambda console: _render(console, verification, compared))
    return _CODES[verification.state]


def _next_nonce(sync: Object) -> int:
    """Larger than that of the request that there is, and of one that was answered before."""
    asked = int((sync["spec"].get("verify") or {}).get("nonce") or 0)
    answered = int(((sync.get("status") or {}).get("verification") or {}).get("nonce") or 0)
    return max(asked, answered) + 1


def _pattern(table: str) -> str:
    """That matches this name alone."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", table)


def _wait(syncs: ClusterSyncs, name: str, nonce: int, seconds: float) -> tuple[Object, VerificationStatus]:
    """The resource with the result. An API server that cannot be asked is asked again. Raises
    InternalError where the result does not come, SpecInvalid where another request took the place
    of this one."""
    deadline = time.monotonic() + seconds
    while True:
        last = time.monotonic() >= deadline
        try:
            sync = syncs.get(name)
        except CdcError as error:
            if last or not error.reason.retried:
                raise
        else:
            verification = _result_of(sync, nonce)
            if verification is not None and verification.state.final:
                return sync, verification
            if last:
                raise _late(verification, nonce)
        time.sleep(_POLL_SECONDS)


def _result_of(sync: Object, nonce: int) -> VerificationStatus | None:
    """What there is of the request. Raises SpecInvalid where another one took its place."""
    verification = status_of(sync).verification
    if verification is not None and verification.nonce > nonce:
        replaced = f"request {verification.nonce} has taken the place of request {nonce}"
        raise fail(Reason.SPEC_INVALID, replaced, remedy="see status.verification")
    return verification if verification is not None and verification.nonce == nonce else None


def _late(verification: VerificationStatus | None, nonce: int) -> Exception:
    state = f"{verification.state.value} ({verification.message})" if verification else "not taken up by the operator"
    return fail(
        Reason.INTERNAL_ERROR,
        f"verification {nonce} has not ended: it is {state}",
        remedy="it goes on without this command; see status.verification, or `kubectl cdcsync logs`",
    )


def _render(console: Console, verification: VerificationStatus, tables: list[TableStatus]) -> None:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "SOURCE ROWS", "TARGET ROWS", "RESULT"):
        grid.add_column(title, justify="right" if title.endswith("ROWS") else "left", no_wrap=True)
    for table in tables:
        verified = table.verified
        assert verified is not None
        grid.add_row(shown(table.name), f"{verified.source_rows:,}", f"{verified.target_rows:,}", _result(table))
    print_grid(console, grid)
    line = f"{verification.state.value}: {verification.equal} of {verification.total} tables equal"
    console.print(line, markup=False)
    if verification.message:
        console.print(shown_message(verification.message), markup=False)


def _result(table: TableStatus) -> str:
    verified = table.verified
    assert verified is not None
    if verified.result is VerifiedResult.DIFFERENT:
        return f"[bold red]{differing_keys(verified)}[/]"
    return "[green]equal[/]" if verified.result is VerifiedResult.EQUAL else "[yellow]not compared[/]"
