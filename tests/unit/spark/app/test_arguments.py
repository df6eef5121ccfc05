"""The arguments of `python -m cdcsync_spark`: the run's file, and in tests the
decoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.runs.run import Decoder, ExitCode, RunConfig, RunKind
from cdcsync_spark.__main__ import _config, main


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "run.json"
    path.write_text(RunConfig("shop-1", 1, RunKind.STREAM, {}, (), "/plan", "/secrets", "/scratch").to_json())
    return str(path)


def test_a_test_may_ask_for_the_oracle(file: str) -> None:
    assert _config([file]).decoder is Decoder.VECTORIZED
    assert _config(["--decoder", "reference", file]).decoder is Decoder.REFERENCE


@pytest.mark.parametrize("arguments", [[], ["--decoder", "fast", "FILE"], ["FILE", "FILE"]])
def test_wrong_arguments_are_a_usage_error(arguments: list[str], file: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([file if a == "FILE" else a for a in arguments])
    assert caught.value.code == ExitCode.USAGE
