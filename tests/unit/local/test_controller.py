"""Local mode end to end on a simulated source and driver: files, processes, signals (R4, R7,
R8)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.timestamps import unix_time
from cdcsync_operator.decision.summary.goal import Until
from cdcsync_operator.local.driver_process import DriverProcess
from unit.local.harness import PASSWORD, LocalHarness


def starts(local: LocalHarness) -> list[str]:
    return sorted(p.name for p in local.state.logs.glob("*.log"))


def test_from_nothing_to_caught_up(local: LocalHarness) -> None:
    assert local.run() is ExitCode.DONE
    phases = list(dict.fromkeys(s.phase for s in local.shown))
    assert phases[0] is Phase.PENDING
    assert phases[-1] is Phase.STREAMING
    assert local.last.condition("Consistent").status == "True"
    assert {t.splits_total for t in local.last.table_status} == {2500}
    assert local.last.runs == Status().runs
    assert list(local.state.runs.iterdir()) == []


def test_the_state_file_is_the_resource_with_its_status(local: LocalHarness) -> None:
    local.run()
    stored = yaml.safe_load(local.state.state_file.read_text())
    assert list(stored) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert stored["status"] == local.last.to_dict()
    assert stored["metadata"]["generation"] == stored["status"]["observedGeneration"] == 1


def test_secrets_are_private_files_that_are_gone_at_the_end(local: LocalHarness) -> None:
    seen: list[int] = []

    def note(status: Status) -> None:
        folder = local.controller.drivers.secrets_dir
        seen.append((folder.stat().st_mode & 0o777) | ((folder / "login" / "password").stat().st_mode & 0o777))

    local.on_show = note
    local.run()
    assert set(local.secrets_seen) == {PASSWORD}
    assert set(seen) == {0o700}
    assert not local.controller.drivers.secrets_dir.exists()
    for path in local.state.root.rglob("*"):
        assert path.is_dir() or PASSWORD not in path.read_text(errors="replace"), path


def test_a_second_run_goes_on_without_a_snapshot(local: LocalHarness) -> None:
    local.run()
    before = starts(local)
    assert local.run() is ExitCode.DONE
    assert len(starts(local)) == len(before) + 1


def test_a_deleted_state_file_is_found_again(local: LocalHarness) -> None:
    local.run()
    local.state.state_file.unlink()
    assert local.run() is ExitCode.DONE
    assert local.last.condition("Consistent").status == "True"


def test_until_snapshot_ends_without_a_stream(local: LocalHarness) -> None:
    assert local.run(Until.SNAPSHOT) is ExitCode.DONE
    assert local.last.condition("SnapshotComplete").status == "True"


@pytest.mark.parametrize("kind", [RunKind.SNAPSHOT, RunKind.STREAM])
@pytest.mark.parametrize("word", ["crash", "mute"])
def test_a_lost_driver_is_replaced(local: LocalHarness, kind: RunKind, word: str) -> None:
    local.order(kind, word)
    assert local.run() is ExitCode.DONE
    failed = [s for s in local.shown if s.restarts.consecutive]
    assert failed[0].restarts.reason == "DriverLost"
    message = failed[0].condition("Ready").message
    assert ("SIGKILL" if word == "crash" else "without an exit report") in message
    assert ".log" in message


def test_a_permanent_end_is_the_users_and_a_new_run_tries_again(local: LocalHarness) -> None:
    local.order(RunKind.STREAM, "permanent")
    assert local.run() is ExitCode.USER_MUST_ACT
    assert local.last.phase is Phase.FAILED
    assert local.last.condition("Stalled").reason == "PositionLost"
    assert local.run() is ExitCode.DONE


def test_a_table_that_failed_leaves_the_others_and_is_not_forgotten(local: LocalHarness) -> None:
    local.order(RunKind.SNAPSHOT, "fail-table")
    assert local.run() is ExitCode.USER_MUST_ACT
    assert local.last.tables.failed == 1
    assert local.last.tables.streaming == 1


def test_all_faults_of_the_source_end_the_run(local: LocalHarness) -> None:
    local.errors = (fail(Reason.BINLOG_DISABLED, "log_bin is OFF"), fail(Reason.PRIVILEGE_MISSING, "no grant"))
    assert local.run() is ExitCode.USER_MUST_ACT
    assert "log_bin is OFF\nno grant" in local.last.condition("Stalled").message


@pytest.mark.parametrize("what", ["root", "folder", "runs"])
def test_a_state_folder_that_is_removed_under_a_run_is_an_error_and_loses_nothing(
    local: LocalHarness, what: str
) -> None:
    """R4: what it held is found again. The drivers end, because no later run would find them."""
    drivers: list[DriverProcess] = []

    def remove(status: Status) -> None:
        if status.runs.stream is not None and not drivers:
            drivers.extend(run.process for run in local.controller.drivers._runs.values())
            getattr(local.state, what).rename(local.folder / "removed")

    local.on_show = remove
    with pytest.raises(CdcError, match=r"the state folder cannot be used any more: .*/state/.*remedy: run it again"):
        local.run(Until.FOREVER)
    for driver in drivers:
        driver._watcher.join(600)
        assert driver.exit is not None
    local.on_show = lambda _: None
    assert local.run() is ExitCode.DONE


def test_a_full_disk_under_the_state_folder_is_an_error_that_names_it(local: LocalHarness) -> None:
    """As on a disk on which no file grows beyond a few bytes. What is there stays whole."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before: list[str] = []

    def fill(status: Status) -> None:
        if status.runs.stream is not None and not before:
            before.append(local.state.state_file.read_text())
            local.change("/lake", "/another")
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))

    local.on_show = fill
    try:
        with pytest.raises(
            CdcError, match=r"cannot be used any more: .*/state/.*remedy: free space on its disk, and run it"
        ):
            local.run(Until.FOREVER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert before == [local.state.state_file.read_text()]
    assert not list(local.state.root.glob(".*"))
    local.on_show = lambda _: None
    assert local.run() is ExitCode.DONE


def test_an_interrupt_drains_and_leaves_no_run(local: LocalHarness) -> None:
    def interrupt_once_streaming(status: Status) -> None:
        if status.runs.stream and not local.controller.closing:
            os.kill(os.getpid(), signal.SIGINT)

    local.on_show = interrupt_once_streaming
    assert local.run(Until.FOREVER) is ExitCode.DONE
    assert local.last.runs == Status().runs
    assert local.last.condition("Ready").reason == "Stopped"


def test_a_second_interrupt_ends_a_driver_that_does_not_drain(local: LocalHarness) -> None:
    local.order(RunKind.STREAM, "stubborn")

    def interrupt(status: Status) -> None:
        stream = status.runs.stream
        if stream and any(r.reported_at for r in local.controller.reconciler.runs if r.id == stream.id):
            os.kill(os.getpid(), signal.SIGINT)

    local.on_show = interrupt
    assert local.run(Until.FOREVER) is ExitCode.DONE


def test_two_controllers_of_one_sync_refuse_each_other(local: LocalHarness) -> None:
    with local.state.lock():
        with pytest.raises(CdcError) as caught:
            local.run()
        assert caught.value.reason is Reason.SINK_CONFLICT
        assert f"pid {os.getpid()}" in caught.value.message
    assert local.run() is ExitCode.DONE


def test_pause_and_resume_by_the_manifest_while_it_runs(local: LocalHarness) -> None:
    steps = iter([(Phase.STREAMING, "spec:", "spec:\n  state: paused"), (Phase.PAUSED, "paused", "running")])
    wanted = [next(steps)]

    def edit(status: Status) -> None:
        if (
            wanted[0]
            and status.phase is wanted[0][0]
            and (status.phase is Phase.PAUSED or status.tables.streaming == 2)
        ):
            local.change(*wanted[0][1:])
            wanted[0] = next(steps, None)  # type: ignore[call-overload]
        elif not wanted[0] and status.phase is Phase.STREAMING and status.condition("Ready").status == "True":
            local.controller.interrupt()

    local.on_show = edit
    assert local.run(Until.FOREVER) is ExitCode.DONE
    assert any(s.phase is Phase.PAUSED and s.condition("Ready").reason == "Paused" for s in local.shown)
    assert local.last.observed_generation == 3


def test_resnapshot_while_the_stream_goes_on(local: LocalHarness) -> None:
    """R5: a snapshot while the stream goes on, catch-up, handover."""
    done = threading.Event()

    def edit(status: Status) -> None:
        table_b = status.table("shop.b")
        if status.tables.streaming == 2 and not done.is_set():
            done.set()
            local.change("spec:", "spec:\n  resnapshot: [{table: shop.b, nonce: 1}]")
        elif done.is_set() and table_b and table_b.nonce == 1 and status.condition("Consistent").status == "True":
            local.controller.interrupt()

    local.on_show = edit
    assert local.run(Until.FOREVER) is ExitCode.DONE
    kinds = {k for s in local.shown for k in RunKind if s.runs.get(k)}
    assert kinds == {RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP}
    assert any(s.runs.snapshot and s.runs.stream for s in local.shown)
    assert any(s.runs.get(RunKind.CATCH_UP) and s.runs.stream for s in local.shown)
    assert all(s.restarts.consecutive == 0 for s in local.shown)


def test_a_manifest_that_becomes_wrong_changes_nothing(local: LocalHarness) -> None:
    broken: list[bool] = []

    def edit(status: Status) -> None:
        if status.phase is Phase.STREAMING and not broken:
            broken.append(True)
            local.change("spec:", "spec:\n  nonsense: 1")
        elif local.faults and status.condition("Ready").status == "True":
            local.controller.interrupt()

    local.on_show = edit
    assert local.run(Until.FOREVER) is ExitCode.DONE
    assert "spec.nonsense" in local.faults[0].message
    assert local.last.observed_generation == 1


def test_a_rotated_password_reaches_the_files(local: LocalHarness) -> None:
    rotated: list[bool] = []

    def edit(status: Status) -> None:
        file = local.controller.drivers.secrets_dir / "login" / "password"
        if status.phase is Phase.STREAMING and not rotated:
            rotated.append(True)
            local.change(PASSWORD, "another-one")
        elif rotated and file.read_text() == "another-one":
            local.controller.interrupt()

    local.on_show = edit
    assert local.run(Until.FOREVER) is ExitCode.DONE


CONTROLLER = """
import sys; sys.path[:0] = {paths!r}
from pathlib import Path
from unit.local.harness import LocalHarness
from cdcsync_operator.decision.summary.goal import Until
local = LocalHarness.__new__(LocalHarness)
folder = Path({folder!r})
local.folder, local.driver_folder, local.manifest = folder, folder / "driver", folder / "shop.yaml"
local.tables, local.errors, local.shown, local.faults, local.secrets_seen = ["shop.a", "shop.b"], (), [], [], []
local.on_show = lambda status: print(status.runs.stream and status.tables.streaming, flush=True)
local.run(Until.FOREVER)
"""


def test_a_killed_controller_leaves_a_driver_that_ends_and_a_state_that_goes_on(local: LocalHarness) -> None:
    """Crash point: the controller dies; its driver drains when its reports are not read, the next
    controller waits for it."""
    code = CONTROLLER.format(paths=[str(Path(__file__).parents[2])], folder=str(local.folder))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    for line in child.stdout:
        if line.strip() == "2":
            break
    child.kill()
    child.wait()
    child.stdout.close()
    (leftover,) = Path(os.environ["TMPDIR"]).glob("cdcsync-secrets-*")
    assert local.run() is ExitCode.DONE
    assert local.shown[0].restarts.consecutive == 0
    assert all(s.restarts.consecutive == 0 for s in local.shown), "nothing failed, a process was killed"
    assert not leftover.exists()


# ---- with a schedule


class Ahead:
    """A clock that a test puts forward."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.seconds


def test_a_schedule_holds_no_process_between_its_times(local: LocalHarness) -> None:
    """Nothing is copied before the time, all of it after it, by a process that ends."""
    local.change("spec:", "spec:\n  stream: {schedule: {cron: '0 */6 * * *'}}")
    clock, seen = Ahead(), []

    def note(status: Status) -> None:
        if status.phase is not Phase.WAITING or (seen and seen[-1].schedule == status.schedule):
            return
        seen.append(status)
        assert status.schedule is not None
        assert not any(run.live for run in local.controller.reconciler.runs)
        assert len(starts(local)) == 1 + len(seen)
        clock.seconds += (unix_time(status.schedule.next_time) or 0) - clock()
        if len(seen) == 3:
            local.controller.interrupt()

    local.on_show = note
    assert local.run(Until.FOREVER, lambda c: setattr(c.reconciler, "clock", clock)) is ExitCode.DONE
    times = [s.schedule.next_time for s in seen if s.schedule]
    assert len(set(times)) == 3
    assert all(s.condition("Ready").status == "True" for s in seen)


def test_caught_up_does_not_wait_for_the_schedule(local: LocalHarness) -> None:
    """Between two times, and at once."""
    local.change("spec:", "spec:\n  stream: {schedule: {cron: '0 0 1 1 *'}}")
    local.on_show = lambda s: local.controller.interrupt() if s.phase is Phase.WAITING else None
    assert local.run(Until.FOREVER) is ExitCode.DONE
    local.on_show = lambda _: None
    assert local.run(Until.CAUGHT_UP) is ExitCode.DONE
    assert Phase.WAITING not in {s.phase for s in local.shown[-3:]}
