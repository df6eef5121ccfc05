"""Local mode end to end on a pretended source and driver: files, processes, signals (R4, R7,
R8)."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cdcsync_core.chunk import Bound, Split
from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.position import LogOffset
from cdcsync_core.run import ExitCode, RunKind
from cdcsync_core.spec import CdcSync
from cdcsync_core.status import Phase, Status
from cdcsync_core.table import Column, SourceType, Table, TableId
from cdcsync_operator.decision.goal import Until
from cdcsync_operator.decision.observed import ObservedTable, PreflightResult
from cdcsync_operator.local import state_folder
from cdcsync_operator.local.controller import LocalController, open_local
from cdcsync_operator.local.driver_process import DriverProcess
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import ManifestFiles
from cdcsync_operator.reconcile.files import write_atomically
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls

DRIVER = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
PASSWORD = "hunter2-never-shown"
MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: login, labels: {cdcsync.io/source: "true"}}
stringData: {username: cdc, password: %s}
---
apiVersion: cdcsync.io/v1alpha1
kind: CdcSync
metadata: {name: shop}
spec:
  source: {host: 127.0.0.1, credentialsSecretRef: {name: login}}
  tables: {include: ['shop\\..*']}
  sink: {delta: {path: /lake}}
  autoRestart: {backoff: {initial: 100ms, max: 1s}}
"""


def table(name: str) -> Table:
    database, _, bare = name.partition(".")
    return Table(TableId(database, bare), (Column("id", SourceType.parse("int"), nullable=False),), ("id",))


class Place:
    """A folder with a manifest, a pretended source of two tables, and what "targets" have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = folder / "world"
        self.world.mkdir()
        self.manifest = folder / "shop.yaml"
        self.manifest.write_text(MANIFEST % PASSWORD)
        self.tables = ["shop.a", "shop.b"]
        self.errors: tuple[CdcError, ...] = ()
        self.set_log_end(100)
        self.shown: list[Status] = []
        self.faults: list[CdcError] = []
        self.secrets_seen: list[str] = []
        self.on_show: Callable[[Status], None] = lambda _: None

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder / "state", "default", "shop")

    def set_log_end(self, offset: int) -> None:
        temporary = self.world / ".log-end"
        temporary.write_text(str(offset))
        temporary.replace(self.world / "log-end")

    def order(self, kind: RunKind, word: str) -> None:
        (self.world / f"{kind.value}.order").write_text(word)

    def change(self, old: str, new: str) -> None:
        temporary = self.folder / ".shop.yaml"
        temporary.write_text(self.manifest.read_text().replace(old, new))
        temporary.replace(self.manifest)

    # -- the pretended source

    def preflight(self, resource: CdcSync, secrets: Path, unread: frozenset[str] | None) -> PreflightOutcome:
        self.secrets_seen.append((secrets / "login" / "password").read_text())
        found = () if self.errors else tuple(ObservedTable(t) for t in self.tables)
        seen = PreflightResult(resource.metadata.generation, time.time(), self.errors, found, (), {"flavor": "mysql"})
        return PreflightOutcome(seen, {t: table(t) for t in self.tables})

    def current(self, resource: CdcSync, secrets: Path) -> LogOffset:
        return LogOffset("binlog.000001", int((self.world / "log-end").read_text()))

    def splits(self, resource: CdcSync, secrets: Path, _: Table, start: Bound) -> Iterator[Split]:
        for end in [(i * 10,) for i in range(1, 2500)]:
            yield Split(start, end)
            start = end
        yield Split(start, None)

    # -- running

    def run(self, until: Until = Until.CAUGHT_UP, begin: Callable[[LocalController], None] | None = None) -> ExitCode:
        files = ManifestFiles([str(self.manifest)])
        calls = SourceCalls(self.preflight, self.current, self.splits)
        manifest = files.load()
        with open_local(files, manifest, self.folder / "state", calls, self.faults.append, DRIVER) as controller:
            self.controller = controller
            if begin:
                begin(controller)
            return controller.run(until, self._show)

    def _show(self, _: CdcSync, status: Status) -> None:
        # the log goes on while anybody looks, so that every high watermark is passed
        self.set_log_end(int((self.world / "log-end").read_text()) + 5)
        self.shown.append(status)
        self.on_show(status)

    @property
    def last(self) -> Status:
        return self.shown[-1]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.setenv("FAKE_WORLD", str(found.world))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return found


def starts(place: Place) -> list[str]:
    return sorted(p.name for p in place.state.logs.glob("*.log"))


def test_from_nothing_to_caught_up(place: Place) -> None:
    assert place.run() is ExitCode.DONE
    phases = list(dict.fromkeys(s.phase for s in place.shown))
    assert phases[0] is Phase.PENDING
    assert phases[-1] is Phase.STREAMING
    assert place.last.condition("Consistent").status == "True"
    assert {t.splits_total for t in place.last.table_status} == {2500}
    assert place.last.runs == Status().runs
    assert list(place.state.runs.iterdir()) == []


def test_the_state_file_is_the_resource_with_its_status(place: Place) -> None:
    place.run()
    stored = yaml.safe_load(place.state.state_file.read_text())
    assert list(stored) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert stored["status"] == place.last.to_dict()
    assert stored["metadata"]["generation"] == stored["status"]["observedGeneration"] == 1


def test_secrets_are_private_files_that_are_gone_at_the_end(place: Place) -> None:
    seen: list[int] = []

    def note(status: Status) -> None:
        folder = place.controller.drivers.secrets_dir
        seen.append((folder.stat().st_mode & 0o777) | ((folder / "login" / "password").stat().st_mode & 0o777))

    place.on_show = note
    place.run()
    assert set(place.secrets_seen) == {PASSWORD}
    assert set(seen) == {0o700}
    assert not place.controller.drivers.secrets_dir.exists()
    for path in place.state.root.rglob("*"):
        assert path.is_dir() or PASSWORD not in path.read_text(errors="replace"), path


def test_a_second_run_goes_on_without_a_snapshot(place: Place) -> None:
    place.run()
    before = starts(place)
    assert place.run() is ExitCode.DONE
    assert len(starts(place)) == len(before) + 1


def test_a_deleted_state_file_is_found_again(place: Place) -> None:
    place.run()
    place.state.state_file.unlink()
    assert place.run() is ExitCode.DONE
    assert place.last.condition("Consistent").status == "True"


def test_until_snapshot_ends_without_a_stream(place: Place) -> None:
    assert place.run(Until.SNAPSHOT) is ExitCode.DONE
    assert place.last.condition("SnapshotComplete").status == "True"


@pytest.mark.parametrize("kind", [RunKind.SNAPSHOT, RunKind.STREAM])
@pytest.mark.parametrize("word", ["crash", "mute"])
def test_a_lost_driver_is_replaced(place: Place, kind: RunKind, word: str) -> None:
    place.order(kind, word)
    assert place.run() is ExitCode.DONE
    failed = [s for s in place.shown if s.restarts.consecutive]
    assert failed[0].restarts.reason == "DriverLost"
    message = failed[0].condition("Ready").message
    assert ("SIGKILL" if word == "crash" else "without a last word") in message
    assert ".log" in message


def test_a_permanent_end_is_the_users_and_a_new_run_tries_again(place: Place) -> None:
    place.order(RunKind.STREAM, "permanent")
    assert place.run() is ExitCode.USER_MUST_ACT
    assert place.last.phase is Phase.FAILED
    assert place.last.condition("Stalled").reason == "PositionLost"
    assert place.run() is ExitCode.DONE


def test_a_table_that_failed_leaves_the_others_and_is_not_forgotten(place: Place) -> None:
    place.order(RunKind.SNAPSHOT, "fail-table")
    assert place.run() is ExitCode.USER_MUST_ACT
    assert place.last.tables.failed == 1
    assert place.last.tables.streaming == 1


def test_all_faults_of_the_source_end_the_run(place: Place) -> None:
    place.errors = (fail(Reason.BINLOG_DISABLED, "log_bin is OFF"), fail(Reason.PRIVILEGE_MISSING, "no grant"))
    assert place.run() is ExitCode.USER_MUST_ACT
    assert "log_bin is OFF\nno grant" in place.last.condition("Stalled").message


@pytest.mark.parametrize("what", ["root", "folder", "runs"])
def test_a_state_folder_that_is_removed_under_a_run_is_an_error_and_loses_nothing(place: Place, what: str) -> None:
    """R4: what it held is found again. The drivers end, because no later run would find them."""
    drivers: list[DriverProcess] = []

    def remove(status: Status) -> None:
        if status.runs.stream is not None and not drivers:
            drivers.extend(run.process for run in place.controller.drivers._runs.values())
            getattr(place.state, what).rename(place.folder / "removed")

    place.on_show = remove
    with pytest.raises(CdcError, match=r"the state folder cannot be used any more: .*/state/.*remedy: run it again"):
        place.run(Until.FOREVER)
    for driver in drivers:
        driver._watcher.join(60)
        assert driver.exit is not None
    place.on_show = lambda _: None
    assert place.run() is ExitCode.DONE


def test_an_interrupt_drains_and_leaves_no_run(place: Place) -> None:
    def interrupt_once_streaming(status: Status) -> None:
        if status.runs.stream and not place.controller.closing:
            os.kill(os.getpid(), signal.SIGINT)

    place.on_show = interrupt_once_streaming
    assert place.run(Until.FOREVER) is ExitCode.DONE
    assert place.last.runs == Status().runs
    assert place.last.condition("Ready").reason == "Stopped"


def test_an_interrupt_waits_for_no_lock(place: Place) -> None:
    """The thread that it interrupts may hold the one of the event on which it waits."""

    def interrupt_in_the_middle(status: Status) -> None:
        if status.runs.stream and not place.controller.closing:
            with place.controller.woken._cond:
                os.kill(os.getpid(), signal.SIGINT)

    place.on_show = interrupt_in_the_middle
    assert place.run(Until.FOREVER) is ExitCode.DONE


def test_a_second_interrupt_ends_a_driver_that_does_not_drain(place: Place) -> None:
    place.order(RunKind.STREAM, "stubborn")

    def interrupt(status: Status) -> None:
        stream = status.runs.stream
        if stream and any(r.reported_at for r in place.controller.drivers.seen(status) if r.id == stream.id):
            os.kill(os.getpid(), signal.SIGINT)

    place.on_show = interrupt
    assert place.run(Until.FOREVER) is ExitCode.DONE


def test_who_only_looks_keeps_no_controller_from_starting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_folder, "_LOCK_TRIES", 600)
    place.state.lock().close()
    with place.state.lock_file.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (looked_at, fcntl.LOCK_UN)).start()
        place.state.lock().close()


def test_two_controllers_of_one_sync_refuse_each_other(place: Place) -> None:
    with place.state.lock():
        with pytest.raises(CdcError) as caught:
            place.run()
        assert caught.value.reason is Reason.SINK_CONFLICT
        assert f"pid {os.getpid()}" in caught.value.message
    assert place.run() is ExitCode.DONE


def test_pause_and_resume_by_the_manifest_while_it_runs(place: Place) -> None:
    steps = iter([(Phase.STREAMING, "spec:", "spec:\n  state: paused"), (Phase.PAUSED, "paused", "running")])
    wanted = [next(steps)]

    def edit(status: Status) -> None:
        if (
            wanted[0]
            and status.phase is wanted[0][0]
            and (status.phase is Phase.PAUSED or status.tables.streaming == 2)
        ):
            place.change(*wanted[0][1:])
            wanted[0] = next(steps, None)  # type: ignore[call-overload]
        elif not wanted[0] and status.phase is Phase.STREAMING and status.condition("Ready").status == "True":
            place.controller.interrupt()

    place.on_show = edit
    assert place.run(Until.FOREVER) is ExitCode.DONE
    assert any(s.phase is Phase.PAUSED and s.condition("Ready").reason == "Paused" for s in place.shown)
    assert place.last.observed_generation == 3


def test_resnapshot_while_the_stream_goes_on(place: Place) -> None:
    """R5: snapshot beside the stream, catch-up, handover."""
    done = threading.Event()

    def edit(status: Status) -> None:
        table_b = status.table("shop.b")
        if status.tables.streaming == 2 and not done.is_set():
            done.set()
            place.change("spec:", "spec:\n  resnapshot: [{table: shop.b, nonce: 1}]")
        elif done.is_set() and table_b and table_b.nonce == 1 and status.condition("Consistent").status == "True":
            place.controller.interrupt()

    place.on_show = edit
    assert place.run(Until.FOREVER) is ExitCode.DONE
    kinds = {k for s in place.shown for k in RunKind if s.runs.get(k)}
    assert kinds == set(RunKind)
    assert any(s.runs.snapshot and s.runs.stream for s in place.shown)
    assert any(s.runs.catch_up and s.runs.stream for s in place.shown)
    assert all(s.restarts.consecutive == 0 for s in place.shown)


def test_a_manifest_that_becomes_wrong_changes_nothing(place: Place) -> None:
    broken: list[bool] = []

    def edit(status: Status) -> None:
        if status.phase is Phase.STREAMING and not broken:
            broken.append(True)
            place.change("spec:", "spec:\n  nonsense: 1")
        elif place.faults and status.condition("Ready").status == "True":
            place.controller.interrupt()

    place.on_show = edit
    assert place.run(Until.FOREVER) is ExitCode.DONE
    assert "spec.nonsense" in place.faults[0].message
    assert place.last.observed_generation == 1


def test_a_rotated_password_reaches_the_files(place: Place) -> None:
    rotated: list[bool] = []

    def edit(status: Status) -> None:
        file = place.controller.drivers.secrets_dir / "login" / "password"
        if status.phase is Phase.STREAMING and not rotated:
            rotated.append(True)
            place.change(PASSWORD, "another-one")
        elif rotated and file.read_text() == "another-one":
            place.controller.interrupt()

    place.on_show = edit
    assert place.run(Until.FOREVER) is ExitCode.DONE


CONTROLLER = """
import sys; sys.path[:0] = {paths!r}
from pathlib import Path
from unit.controller.test_local import Place
from cdcsync_operator.decision.goal import Until
place = Place.__new__(Place)
folder = Path({folder!r})
place.folder, place.world, place.manifest = folder, folder / "world", folder / "shop.yaml"
place.tables, place.errors, place.shown, place.faults, place.secrets_seen = ["shop.a", "shop.b"], (), [], [], []
place.on_show = lambda status: print(status.runs.stream and status.tables.streaming, flush=True)
place.run(Until.FOREVER)
"""


def test_a_killed_controller_leaves_a_driver_that_ends_and_a_state_that_goes_on(place: Place) -> None:
    """Crash point: the controller dies; its driver drains when its reports are not heard, the next
    controller waits for it."""
    code = CONTROLLER.format(paths=[str(Path(__file__).parents[2])], folder=str(place.folder))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    for line in child.stdout:
        if line.strip() == "2":
            break
    child.kill()
    child.wait()
    child.stdout.close()
    (leftover,) = Path(os.environ["TMPDIR"]).glob("cdcsync-secrets-*")
    assert place.run() is ExitCode.DONE
    assert place.shown[0].restarts.consecutive == 0
    assert all(s.restarts.consecutive == 0 for s in place.shown), "nothing failed, somebody was killed"
    assert not leftover.exists()


def test_the_state_of_a_sync_is_for_its_user_only(tmp_path: Path) -> None:
    """Driver logs and scratch space hold rows, and the machine may be shared; a folder of an
    earlier release, too."""
    folder = StateFolder(tmp_path / "new", "default", "shop")
    folder.folder.mkdir(parents=True, mode=0o755)
    folder.create()
    made = StateFolder(tmp_path / "made", "default", "shop")
    made.create()
    for private in (folder.folder, made.root, made.folder, made.logs, made.runs):
        assert private.stat().st_mode & 0o077 == 0, private
    write_atomically(made.state_file, "{}")
    assert made.state_file.stat().st_mode & 0o077 == 0
