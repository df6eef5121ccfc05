"""The section of Iceberg: which catalogs there are, how they are reached, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.sinks.iceberg import Iceberg
from cdcsync_core.resource.sinks.kind import Endpoint, StoreUse
from cdcsync_core.tables.event_columns import EventColumns

ACCOUNT = {"credentialsSecretRef": {"name": "account"}}
AUTHORITY = {"tls": {"caSecretRef": {"name": "ca"}}}
SIGNED = {"authentication": "sigv4", "sigv4": {"region": "eu-central-1"}}
FILE = {"type": "jdbc", "uri": "jdbc:sqlite:/lake/catalog.db", "warehouse": "/lake/tables"}
METASTORE = {"type": "hive", "uri": "thrift://metastore.example:9083", "warehouse": "s3://lake/tables"}
GLUE = SIGNED | ACCOUNT | {"type": "glue", "warehouse": "s3://lake/tables"}


def iceberg(catalog: dict[str, Any] | None = None, **more: Any) -> Iceberg:
    return Iceberg.model_validate({"catalog": {"uri": "https://catalog.example/api", **(catalog or {})}, **more})


@pytest.mark.parametrize(
    ("catalog", "more", "fault"),
    [
        ({"type": "nessie"}, {}, "type nessie is not there yet; needed: rest, jdbc, hive or glue"),
        ({"authentication": "basic"}, {}, "authentication basic is not there yet; needed: oauth2, token or sigv4"),
        ({"authentication": "sigv4"} | ACCOUNT, {}, "sigv4 with a region where authentication is sigv4"),
        (SIGNED | ACCOUNT | {"authentication": "oauth2"}, {}, "sigv4 with a region where .* and there alone"),
        (SIGNED, {}, "a credentialsSecretRef with an access key, because authentication is sigv4"),
        (SIGNED | ACCOUNT | {"sigv4": {"region": "eu/x"}}, {}, "pattern"),
        (SIGNED | ACCOUNT | {"uri": "http://catalog.example"}, {}, "an https uri, because the account is sent"),
        ({}, {"formatVersion": 1}, "Input should be 2 or 3"),
        ({}, {"historyColumns": {"op": "TS", "ts": "ts"}}, "historyColumns are different names"),
        ({"type": "jdbc"}, {}, "type jdbc with a uri like jdbc:sqlite:/folder/catalog.db"),
        ({**FILE, "type": "rest"}, {}, "type rest with a uri like https://host/path"),
        ({**FILE, "type": "hive"}, {}, "type hive with a uri like thrift://host:9083"),
        ({**METASTORE, "type": "rest"}, {}, "type rest with a uri like https://host/path"),
        ({**METASTORE, "warehouse": "lake"}, {}, "a warehouse for type hive"),
        (METASTORE | ACCOUNT, {}, "no credentialsSecretRef for type hive"),
        ({**METASTORE, "uri": "thrift://one:9083,thrift://other:9083"}, {}, "pattern"),
        (METASTORE, {"namespace": "a.b"}, "databases have one level"),
        (GLUE, {"namespace": "a.b"}, "type glue, whose databases have one level"),
        ({**GLUE, "warehouse": "lake"}, {}, "a warehouse for type glue"),
        (ACCOUNT | {"type": "glue", "warehouse": "s3://lake/tables"}, {}, "authentication sigv4 for type glue"),
        ({**GLUE, "uri": "thrift://metastore.example:9083"}, {}, "type glue with a uri like https://glue.eu-"),
        ({"type": "jdbc", "uri": "jdbc:postgresql://db/lake"}, {}, "pattern"),
        ({**FILE, "warehouse": "lake"}, {}, "a warehouse for type jdbc"),
        (FILE | ACCOUNT, {}, "no credentialsSecretRef for type jdbc"),
        (FILE | AUTHORITY, {}, "no tls for type jdbc"),
        ({"uri": "http://catalog.example"} | ACCOUNT, {}, "an https uri, because the account is sent"),
        ({"oauth2": {"serverUri": "http://tokens.example"}} | ACCOUNT, {}, "an https uri, because the account is sent"),
        ({"uri": "http://catalog.example"} | AUTHORITY, {}, "an https uri, because tls is given"),
        ({"uri": "https://key:word@catalog.example"}, {}, "pattern"),
        ({"uri": "https://catalog.example:65536"}, {}, "a port up to 65535"),
        ({"uri": "https://[:::]/api"}, {}, "a host"),
        ({"oauth2": {"serverUri": "https://host:0/t"}}, {}, "a host"),
        ({"warehouse": "s3://key:word@lake"}, {}, "credentialsSecretRef"),
        ({}, {"properties": {"format-version": "2"}}, "format-version, which the sink sets itself"),
        ({}, {"properties": {"cdcsync.state": "x"}}, "cdcsync.state, which the sink sets itself"),
        ({}, {"properties": {"write.data.path": "/x"}}, "write.data.path, which the sink sets itself"),
        ({}, {"properties": {"write.folder-storage.path": "/x"}}, "write.folder-storage.path, which the sink sets"),
        ({}, {"properties": {"write.location-provider.impl": "x.Y"}}, "write.location-provider.impl, which the sink"),
        ({}, {"properties": {"gc.enabled": "false"}}, "gc.enabled, which the sink sets itself"),
        ({}, {"properties": {"a": 1}}, 'a text: write a: "1", in quotes'),
        ({}, {"namespace": "a..b"}, "pattern"),
    ],
)
def test_what_is_refused(catalog: dict[str, Any], more: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        iceberg(catalog, **more)


def test_a_catalog_answers_whom_its_account_is_for() -> None:
    sink = iceberg(
        ACCOUNT | AUTHORITY | {"oauth2": {"serverUri": "https://tokens.example:8443/t"}, "warehouse": "lake"},
        credentialsSecretRef={"name": "bucket"},
        options={"endpoint": "http://store.example:9000"},
    )
    assert sink.secrets() == {"account": {"username", "password"}, "ca": {"ca.crt"}, "bucket": set()}
    assert sink.secret_hosts() == {"account": ("catalog.example", "tokens.example")}
    assert sink.endpoints() == (
        Endpoint("spec.sink.iceberg.catalog.uri", "catalog.example"),
        Endpoint("spec.sink.iceberg.catalog.oauth2.serverUri", "tokens.example"),
        Endpoint("spec.sink.iceberg.options.endpoint", "store.example"),
    )
    assert sink.stores() == (), "where its tables lie is the catalog's choice"
    assert iceberg(ACCOUNT | {"authentication": "token"}).secrets() == {"account": {"password"}}
    signed = iceberg(ACCOUNT | SIGNED)
    assert signed.secrets() == {"account": {"username", "password"}}
    assert signed.secret_hosts() == {"account": ("catalog.example",)}


def test_folders_that_all_runs_share() -> None:
    use = "spec.sink.iceberg"
    assert iceberg({"warehouse": "/lake"}).stores() == (StoreUse(use, "/lake", path_field="catalog.warehouse"),)
    file = iceberg(FILE)
    assert file.stores() == (
        StoreUse(use, "/lake/tables", path_field="catalog.warehouse"),
        StoreUse(use, "/lake", path_field="catalog.uri"),
    )
    assert file.servers() == ()


def test_a_metastore_is_a_server_whose_warehouse_is_known() -> None:
    sink = iceberg(METASTORE)
    assert sink.stores() == (StoreUse("spec.sink.iceberg", "s3://lake/tables", path_field="catalog.warehouse"),)
    assert sink.servers() == (Endpoint("spec.sink.iceberg.catalog.uri", "metastore.example"),)
    assert sink.secret_hosts() == {}


def test_glue_is_a_server_with_an_account_whose_warehouse_is_known() -> None:
    sink = iceberg(GLUE | AUTHORITY)
    assert sink.stores() == (StoreUse("spec.sink.iceberg", "s3://lake/tables", path_field="catalog.warehouse"),)
    assert sink.servers() == (Endpoint("spec.sink.iceberg.catalog.uri", "catalog.example"),)
    assert sink.secret_hosts() == {"account": ("catalog.example",)}
    assert sink.secrets() == {"account": {"username", "password"}, "ca": {"ca.crt"}}


def test_the_kind_is_named_by_its_section() -> None:
    sink = SinkSpec.model_validate({"iceberg": {"catalog": {"uri": "https://c"}}})
    assert (sink.type, sink.kind.keeps_events, sink.kind.event_columns()) == ("iceberg", False, None)


def test_a_history_keeps_events_in_columns_that_may_be_named() -> None:
    sink = iceberg(mode="history", historyColumns={"op": "change"})
    assert (sink.keeps_events, sink.needs_row_key) == (True, False)
    assert sink.event_columns() == EventColumns(op="change")
