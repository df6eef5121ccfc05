"""Which diagnostic options a JVM gets, by its version."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_spark.engine import jvm_options
from cdcsync_spark.engine.jvm_options import (
    DIAGNOSTIC,
    Use,
    chosen,
    diagnostic_options,
    java_version,
)

_ALL = [flag.option for flag in DIAGNOSTIC]


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.7", "25-ea", "25.0.3"])
def test_a_version_that_was_tried_gets_them_all(version: str) -> None:
    assert diagnostic_options(version, Use) == (["-XX:+UnlockDiagnosticVMOptions", *_ALL], [])


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "26", "170", "26-ea", "none", "", None])
def test_another_version_goes_without_and_a_warning_names_each(version: str | None) -> None:
    options, warnings = diagnostic_options(version, Use)
    assert options == []
    assert [option for option in _ALL if any(option in warning for warning in warnings)] == _ALL
    assert all((version or "unknown") in warning for warning in warnings)


def test_a_session_gets_those_of_its_use() -> None:
    options, _ = diagnostic_options("17", [Use.ARCHIVE])
    assert options == ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
    assert diagnostic_options("17", []) == ([], [])


def test_the_version_is_that_of_the_jvm_that_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() is None
    (tmp_path / "release").write_text('IMPLEMENTOR="Any"\nJAVA_VERSION="21.0.7"\n')
    assert java_version() == "21.0.7"


def test_what_is_left_out_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jvm_options, "java_version", lambda: "26.0.1")
    assert chosen(Use.ARCHIVE) == ""
    assert "Java 26.0.1 is started without -XX:ArchiveRelocationMode=0" in capsys.readouterr().err
