"""An address is judged by its value, however it is written."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.resource.networks import (
    FILE_VARIABLE,
    VARIABLE,
    address_of,
    networks_of_the_run,
    parse_networks,
    refusing,
)

METADATA = parse_networks(("169.254.0.0/16",))


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.169.254.",
        "2852039166",
        "0xa9fea9fe",
        "0XA9FEA9FE",
        "0251.0376.0251.0376",
        "169.0xfe.43518",
        "169.16689662",
        "::ffff:169.254.169.254",
        "::ffff:a9fe:a9fe%eth0",
        "[::ffff:169.254.169.254]",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ],
)
def test_no_spelling_hides_an_address(host: str) -> None:
    assert refusing(host, METADATA) == METADATA[0]


@pytest.mark.parametrize(
    "host", ["db.example.com", "db1", "1.2.3.4.5", "256.1.1.1", "4294967296", "0x", "08.1.1.1", "", "banana"]
)
def test_what_is_no_address_is_a_name(host: str) -> None:
    assert address_of(host) is None
    with pytest.raises(ValueError):  # noqa: PT011 (a name, the message is the host)
        refusing(host, METADATA)


@given(st.text(alphabet="0123456789abcdefx.", min_size=1, max_size=20))
def test_the_forms_are_those_of_the_c_library(text: str) -> None:
    try:
        expected = ipaddress.IPv4Address(socket.inet_aton(text))
    except OSError:
        expected = None
    assert address_of(text) == expected or text.endswith(".")


def test_the_networks_of_a_run_are_those_of_now(tmp_path: Path) -> None:
    """The kubelet writes the file again while the run goes on."""
    path = tmp_path / "refused"
    environment = {VARIABLE: "127.0.0.0/8 ::1/128", FILE_VARIABLE: str(path)}
    with pytest.raises(OSError, match="refused"):
        networks_of_the_run(environment)
    path.write_text("")
    assert networks_of_the_run(environment) == ("127.0.0.0/8", "::1/128")
    path.write_text("10.7.0.0/24 10.8.0.0/16")
    assert networks_of_the_run(environment) == ("127.0.0.0/8", "::1/128", "10.7.0.0/24", "10.8.0.0/16")
    assert networks_of_the_run({}) == ()
