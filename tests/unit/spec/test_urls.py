"""The URLs of the resource: one alphabet, which every parser of URLs reads alike, so that the host
that a Secret or a policy names is the one that is connected with."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.spec import SourceSpec


def _delta(url: str) -> Any:
    return SinkSpec.model_validate({"delta": {"path": "s3://a/b", "options": {"endpoint": url}}})


def _iceberg(**catalog: Any) -> Any:
    return SinkSpec.model_validate({"iceberg": {"catalog": {"uri": "https://catalog"} | catalog}})


def _registry(url: str) -> Any:
    section = {"bootstrapServers": "k:9092", "staging": {"path": "s3://a/b"}, "format": "debezium-avro"}
    return SinkSpec.model_validate({"kafka": section | {"schemaRegistry": {"url": url}}})


FIELDS = {
    "a store's endpoint": _delta,
    "a catalog": lambda url: _iceberg(uri=url),
    "a token's server": lambda url: _iceberg(oauth2={"serverUri": url}),
    "a registry": _registry,
}
ODD = [
    "https://user@evil", "https://good.example@evil", r"https://evil\@good.example", r"https://evil\.good.example", "https:/evil",
    "https://evil%2egood.example", "https://evil%00.good.example", "https://ⓔvil.example", "https://evil\uff0f.good.example",
    "https://evil\u3002example", "https://good.example\n.evil", "https://good.example\t", " https://a", "https://a b", "https://a,b",
    "https://[::1]evil", "https://[fe80::1%25eth0]", "https://[:::]", "https://[1.2.3.4:5", "https://a:99999", "https://a:0",
    "https://a:b", "https://a:80:90", "https://:80", "ftp://a", "https://a/ü", "https://a/\\b", "https://a?b", "https://a#b", "//a", "a:80",
    "https://a/\r\nHost: evil", "https://a/\ud800",
]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("url", ODD, ids=ascii)
def test_an_odd_url_is_refused(field: str, url: str) -> None:
    with pytest.raises(ValidationError):
        FIELDS[field](url)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "url",
    ["https://a_b-c.example.", "http://10.0.0.1:9000", "https://[2001:db8::1]:443/v1/s3", "https://a/x%20y/~z@1;(2)"],
)
def test_a_usual_url_passes_and_its_host_is_known(field: str, url: str) -> None:
    hosts = [server.host for server in FIELDS[field](url).kind.endpoints()]
    assert all(host and host in url for host in hosts if host not in ("catalog", "k"))


@pytest.mark.parametrize(
    "host", ["user@evil", "evil%2e", "ⓔvil", "a b", "a,b", "[::1]", "host:3306", "a/b", "a\n", "", "a\\b"]
)
def test_an_odd_host_is_refused(host: str) -> None:
    account = {"name": "a"}
    with pytest.raises(ValidationError):
        SourceSpec.model_validate({"host": host, "credentialsSecretRef": account})
    for kind in ("mysql", "postgresql"):
        with pytest.raises(ValidationError):
            SinkSpec.model_validate({kind: {"host": host, "credentialsSecretRef": account, "database": "d"}})


@pytest.mark.parametrize("region", ["eu.evil.example/", "eu/", "eu?", "ü"])
def test_a_region_is_a_part_of_a_hosts_name(region: str) -> None:
    with pytest.raises(ValidationError):
        SinkSpec.model_validate({"delta": {"path": "s3://a/b", "options": {"region": region}}})
