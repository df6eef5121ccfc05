"""The command line's promises that need no server: exit codes, JSON twins, errors with what was
found, needed and to be done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cdcsync_core.errors import Reason, fail, message_parts
from cdcsync_core.resource.manifest import load_manifest
from cdcsync_core.runs.run import ExitCode, TablePhase
from cdcsync_core.runs.status import Phase, ScheduleStatus, Status, only_tables, with_condition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.cli.command import exit_code
from cdcsync_operator.cli.main import COMMANDS, cli
from cdcsync_operator.cli.run import _print_end
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import LocalResourceStore, ManifestFiles
from support.manifests import MANIFEST

EXAMPLES = Path(__file__).parents[3] / "examples"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(MANIFEST)
    return path


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_loads(path: Path) -> None:
    assert load_manifest([path.read_text()]).resource.metadata.name


@pytest.mark.parametrize("command", [c.name for c in COMMANDS])
def test_every_command_has_help_and_json(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "[table|json]" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "-f", "x", "--until", "never"],
        ["nonsense"],
        ["check", "-f", "x", "-o", "xml"],
        ["plan", "--no"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("value", ["5x", "", "-1m", "five"])
def test_a_wait_that_is_no_duration_is_shown_with_what_is_needed(value: str) -> None:
    result = call("verify", "-f", "x", "--wait", value)
    assert result.exit_code == ExitCode.USAGE
    assert f'"{value}"; needed: a duration' in result.stderr
    assert "for example 5m" in result.stderr


@pytest.mark.parametrize("command", ["run", "check", "plan"])
def test_a_wrong_manifest_is_2_and_names_each_fault(command: str, manifest: Path) -> None:
    manifest.write_text(MANIFEST + "  transforms: []\n  state: off\n")
    result = call(command, "-f", str(manifest))
    assert result.exit_code == ExitCode.USAGE
    assert result.stdout == ""
    assert "spec.transforms is not known or not built yet" in result.stderr
    assert "needed:  'running' or 'paused'" in result.stderr


def test_a_missing_file_is_2(tmp_path: Path) -> None:
    result = call("run", "-f", str(tmp_path / "none.yaml"))
    assert result.exit_code == ExitCode.USAGE
    assert "No such file" in result.stderr


def test_errors_are_json_for_programs(manifest: Path) -> None:
    manifest.write_text(MANIFEST + "  transforms: []\n")
    result = call("check", "-f", str(manifest), "-o", "json")
    error = json.loads(result.stderr)["error"]
    assert error["reason"] == "SpecInvalid"
    assert error["found"].startswith("spec.transforms")
    assert error["remedy"] == "correct the manifest"


def test_an_unreachable_source_is_1_in_check(manifest: Path) -> None:
    result = call("check", "-f", str(manifest))
    assert result.exit_code == ExitCode.RETRY
    assert "SourceUnreachable" in result.stderr
    assert "spec.source.host" in result.stderr
    assert "hunter2" not in result.output


def test_an_unreachable_source_in_json(manifest: Path) -> None:
    result = call("check", "-f", str(manifest), "-o", "json")
    found = json.loads(result.stdout)
    assert found["source"] is None
    assert found["checks"][0]["level"] == "fail"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SPEC_INVALID, ExitCode.USAGE),
        (Reason.SOURCE_UNREACHABLE, ExitCode.RETRY),
        (Reason.PRIVILEGE_MISSING, ExitCode.USER_MUST_ACT),
    ],
)
def test_exit_codes_follow_the_reason(reason: Reason, code: ExitCode) -> None:
    assert exit_code(fail(reason, "x")) is code


def test_a_message_comes_apart_as_it_was_joined() -> None:
    error = fail(Reason.BINLOG_DISABLED, "log_bin is OFF", needed="ON", remedy="start it with --log-bin", table="a.b")
    assert message_parts(error.message) == {
        "found": "a.b: log_bin is OFF", "needed": "ON", "remedy": "start it with --log-bin",
    }  # fmt: skip
    assert message_parts("x; remedy: y") == {"found": "x", "needed": "", "remedy": "y"}
    assert message_parts("alone") == {"found": "alone", "needed": "", "remedy": ""}


# ---- status


def stored(tmp_path: Path, manifest: Path) -> Path:
    files = ManifestFiles([str(manifest)])
    folder = StateFolder(tmp_path / "state", "default", "shop")
    folder.create()
    store = LocalResourceStore(files, folder, files.load(), lambda _: None, lambda _: None)
    status = only_tables(
        Status(observed_generation=1, phase=Phase.FAILED),
        [TableStatus(name="shop.[bold]x[/]", splits_total=4, splits_finished=1, rows=1234)],
    )
    message = "binlog.000001 was purged; needed: it; remedy: spec.resnapshot"
    store.save(with_condition(status, "Ready", False, "PositionLost", message, 0.0))
    return folder.root


def test_status_shows_the_last_error_with_its_remedy(tmp_path: Path, manifest: Path) -> None:
    result = call("status", "shop", "--state-dir", str(stored(tmp_path, manifest)))
    assert result.exit_code == 0
    for text in ("default/shop", "Failed", "PositionLost", "was purged", "spec.resnapshot", "shop.[bold]x[/]", "1,234"):
        assert text in result.stdout
    assert "nothing runs here now" in result.stdout


def test_status_shows_the_next_time_of_a_schedule(tmp_path: Path, manifest: Path) -> None:
    """Nothing runs it now, so its lag grows from that time on."""
    root = stored(tmp_path, manifest)
    store = LocalResourceStore(
        ManifestFiles([str(manifest)]),
        StateFolder(root, "default", "shop"),
        load_manifest([manifest.read_text()]),
        print,
        print,
    )
    times = ScheduleStatus(
        next_time="2026-01-01T02:00:00Z", last_start="2026-01-01T00:00:00Z", caught_up_at="2026-01-01T00:00:09Z"
    )
    store.save(store.load()[1].with_(phase=Phase.WAITING, schedule=times))
    shown = call("status", "shop", "--state-dir", str(root)).stdout
    assert "Waiting" in shown
    assert "next time 2026-01-01T02:00:00Z" in " ".join(shown.split())
    found = json.loads(call("status", "shop", "--state-dir", str(root), "-o", "json").stdout)
    assert found["status"]["lagSeconds"] > 3600


@pytest.mark.parametrize("how", ["name", "file", "all"])
def test_status_finds_a_sync_by_name_by_manifest_or_all(how: str, tmp_path: Path, manifest: Path) -> None:
    root = stored(tmp_path, manifest)
    chosen = {"name": ["shop"], "file": ["-f", str(manifest)], "all": []}[how]
    found = json.loads(call("status", *chosen, "--state-dir", str(root), "-o", "json").stdout)
    assert (found["namespace"], found["name"], found["running"]) == ("default", "shop", False)
    assert found["status"]["phase"] == "Failed"


def test_status_of_an_unknown_sync_is_2(tmp_path: Path) -> None:
    result = call("status", "nope", "--state-dir", str(tmp_path))
    assert result.exit_code == ExitCode.USAGE
    assert "no state of default/nope" in result.stderr


def test_a_broken_state_file_says_that_it_can_be_deleted(tmp_path: Path, manifest: Path) -> None:
    root = stored(tmp_path, manifest)
    (root / "default.shop.yaml").write_text("status: [")
    result = call("status", "shop", "--state-dir", str(root))
    assert result.exit_code == ExitCode.USAGE
    assert "delete it" in result.stderr


def test_the_generation_grows_with_the_spec_over_restarts(tmp_path: Path, manifest: Path) -> None:
    root = stored(tmp_path, manifest)
    folder, generations = StateFolder(root, "default", "shop"), []
    for text in (MANIFEST, MANIFEST.replace("hunter2", "rotated"), MANIFEST + "  restartNonce: 1\n"):
        manifest.write_text(text)
        files = ManifestFiles([str(manifest)])
        store = LocalResourceStore(files, folder, files.load(), lambda _: None, lambda _: None)
        resource, status = store.load()
        store.save(status)
        generations.append(resource.metadata.generation)
    assert generations == [1, 1, 2]


@pytest.mark.parametrize("stalled", ["PositionLost", "NoPrimaryKey"])
def test_a_run_ends_with_each_failed_table_under_its_own_reason(
    stalled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with the reason of the sync as a whole, where that is another one."""
    failed = [
        TableStatus(name="s.a", phase=TablePhase.FAILED, reason="NoPrimaryKey", message="s.a: none; remedy: add one"),
        TableStatus(name="s.b", phase=TablePhase.FAILED, reason="TypeUnsupported", message="s.b: a zero date"),
        TableStatus(name="s.c", phase=TablePhase.STREAMING),
    ]
    message = "s.a: none; remedy: add one\ns.b: a zero date" if stalled == "NoPrimaryKey" else "the binlog is purged"
    status = with_condition(only_tables(Status(), failed), "Stalled", True, stalled, message, 0)
    _print_end(Output(as_json=True), status, ExitCode.USER_MUST_ACT)
    printed = [json.loads(line)["error"] for line in capsys.readouterr().err.splitlines()]
    of_tables = [
        {"reason": "NoPrimaryKey", "found": "s.a: none", "remedy": "add one"},
        {"reason": "TypeUnsupported", "found": "s.b: a zero date"},
    ]
    own = [{"reason": "PositionLost", "found": "the binlog is purged"}]
    assert printed == (of_tables if stalled == "NoPrimaryKey" else own + of_tables)
