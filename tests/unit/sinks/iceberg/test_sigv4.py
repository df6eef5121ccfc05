"""AWS' signatures of requests, as botocore judges them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_spark.sinks.iceberg.catalog.connection import Request
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4
from support.signature import AccessKey

KEY = AccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1", "glue")
HEADERS = {"Accept": "application/json", "User-Agent": "cdcsync"}
JSON = {**HEADERS, "Content-Type": "application/json"}


@pytest.fixture
def login(tmp_path: Path) -> SigV4:
    (tmp_path / "username").write_text(f"{KEY.id}\n")
    (tmp_path / "password").write_text(KEY.secret)
    return SigV4(tmp_path / "username", tmp_path / "password", KEY.region, KEY.service)


def fault(request: Request, host: str = "glue.example", key: AccessKey = KEY) -> str:
    return key.fault(request.method, f"https://{host}{request.path}", request.headers, request.body or b"")


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/", HEADERS),
        Request("GET", "/iceberg/v1/config?warehouse=arn%3Aaws%3As3tables%3Aeu%3A1%3Abucket%2Flake%20house", HEADERS),
        Request("GET", "/v1/catalogs/1/namespaces/shop%1Feu/tables/or%2Fders?snapshots=all", HEADERS),
        Request(
            "GET",
            "/v1/x/namespaces/a.b-c_d~e/tables/order%40lines",
            {**HEADERS, "X-Iceberg-Access-Delegation": "  a  b "},
        ),
        Request("GET", "/v1/x?b=2&a=1&a-b=3&a=0", HEADERS),
        Request("POST", "/v1/x/namespaces", JSON, '{"namespace": ["Straße"]}'.encode()),
        Request("DELETE", "/v1/x/tables/t?purgeRequested=false", HEADERS),
    ],
    ids=lambda request: f"{request.method} {request.path}",
)
@pytest.mark.parametrize("host", ["glue.example", "127.0.0.1:8080"])
def test_a_signature_is_the_one_that_is_expected(login: SigV4, request_: Request, host: str) -> None:
    assert fault(login.signed(request_, host), host) == ""


def test_what_is_not_as_it_was_signed_is_refused(login: SigV4) -> None:
    """So the judge is one."""
    signed = login.signed(Request("POST", "/v1/x?a=1", JSON, b"{}"), "glue.example")
    assert fault(signed) == ""
    assert fault(replace(signed, path="/v1/y?a=1")) == "no match"
    assert fault(replace(signed, path="/v1/x?a=2")) == "no match"
    assert fault(replace(signed, method="DELETE")) == "no match"
    assert fault(replace(signed, body=b"[]")) == "another body"
    assert fault(replace(signed, headers={**signed.headers, "Content-Type": "text/plain"})) == "no match"
    assert fault(signed, key=replace(KEY, secret="another")) == "no match"
    assert fault(signed, key=replace(KEY, region="us-east-1")) == "another scope"
    old = login.signed(Request("GET", "/", HEADERS), "glue.example", time.time() - 900)
    assert fault(old) == "another time"


def test_no_part_of_the_key_is_shown_and_one_that_is_missing_is_named(login: SigV4) -> None:
    signed = login.signed(Request("GET", "/", HEADERS), "glue.example")
    assert KEY.secret not in repr((login, signed, signed.headers))
    login.secret_key.write_text("renewed")
    assert fault(login.signed(Request("GET", "/", HEADERS), "glue.example"), key=replace(KEY, secret="renewed")) == ""
    login.secret_key.unlink()
    with pytest.raises(PermanentError, match=r"no readable credential in .*/password"):
        login.signed(Request("GET", "/", HEADERS), "glue.example")
