"""The parts of `spec.sink.iceberg`: a catalog of Iceberg tables and how it is reached.

Why it is right: what is not there yet is refused by its name, so that no table is in another form
than its manifest says.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from cdcsync_core.resource.connection_spec import AccountUse, CaRef, CredentialsRef, is_loopback, joined
from cdcsync_core.resource.spec_part import AUTHORITY, URL, OptionalUrl, Part, Text, check_url

_SQLITE, _METASTORE = "jdbc:sqlite:", "thrift://"
#: how a type's uri begins, and an example of one
_URIS = {
    "rest": (("http://", "https://"), "https://host/path"),
    "jdbc": ((_SQLITE,), "jdbc:sqlite:/folder/catalog.db"),
    "hive": ((_METASTORE,), "thrift://host:9083"),
    "glue": (("http://", "https://"), "https://glue.eu-central-1.amazonaws.com"),
}
_AWS_NAME = "^[a-z0-9-]+$"
_LEVELS = r"^([A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*)?$"
#: what the catalog, the format or this product sets in a table, and classes that engines load
_OWN_PROPERTY = re.compile(r"cdcsync\..*|format-version|.*gc\.enabled|write\..*path.*|.*impl")


def _not_yet(field: str, names: tuple[str, ...], needed: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if str(value) in names:
            raise ValueError(f"{field} {value} is not there yet; needed: {needed}")
        return value

    return BeforeValidator(check)


class OAuth2Spec(Part):
    """Where tokens come from; without a url the catalog's own `v1/oauth/tokens`."""

    server_uri: OptionalUrl = ""
    scope: Text = "catalog"

    @property
    def host(self) -> str:
        return urlsplit(self.server_uri).hostname or ""


class SigV4Spec(Part):
    """How requests to AWS are signed: for which region, and for which service by the name that
    signatures have for it."""

    region: Annotated[str, Field(strict=True, pattern=_AWS_NAME, max_length=63)]
    service: Annotated[str, Field(strict=True, pattern=_AWS_NAME, max_length=63)] = "glue"


class CatalogTls(Part):
    """The authority that the certificates of the catalog and of the token's server are by, instead
    of those that the machine knows. A Hive metastore is reached by TLS where it is given."""

    ca_secret_ref: CaRef


class IcebergCatalog(Part):
    """`rest`: a server with Iceberg's REST protocol. `jdbc`: a file of SQLite in which Iceberg's
    JDBC catalog finds the tables, for one machine. `hive`: a Hive metastore. `glue`: AWS Glue, by
    its own interface."""

    type: Annotated[
        Literal["rest", "jdbc", "hive", "glue"],
        _not_yet("type", ("nessie", "hadoop"), "rest, jdbc, hive or glue"),
    ] = "rest"
    uri: Annotated[
        str,
        Field(strict=True, pattern=rf"^({URL}|jdbc:sqlite:/[^?#\s]+|{_METASTORE}{AUTHORITY})$", max_length=2048),
    ]
    warehouse: Text = ""
    authentication: Annotated[
        Literal["oauth2", "token", "sigv4"],
        _not_yet("authentication", ("basic", "google"), "oauth2, token or sigv4"),
    ] = "oauth2"
    credentials_secret_ref: CredentialsRef | None = None
    oauth2: OAuth2Spec = OAuth2Spec()
    sigv4: SigV4Spec | None = None
    tls: CatalogTls | None = None

    @property
    def host(self) -> str:
        return "" if self.type == "jdbc" else urlsplit(self.uri).hostname or ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that get the account."""
        return (self.host, *([self.oauth2.host] if self.oauth2.host else []))

    @property
    def database(self) -> str:
        """The file of SQLite."""
        return self.uri.removeprefix(_SQLITE)

    @property
    def warehouse_place(self) -> str:
        """The warehouse, where it is a folder or a URL and no name that the catalog gives it."""
        return self.warehouse if self.warehouse.startswith("/") or "://" in self.warehouse else ""

    @model_validator(mode="after")
    def _uri_of_the_type(self) -> IcebergCatalog:
        if not self.uri.startswith(_SQLITE):
            check_url(self.uri)
        begins, example = _URIS[self.type]
        if not self.uri.startswith(begins):
            raise ValueError(f"type {self.type} with a uri like {example}, not {self.uri}")
        if self.type != "rest" and not self.warehouse_place:
            raise ValueError(f"a warehouse for type {self.type}: the folder or the bucket of the tables")
        if self.type in ("jdbc", "hive") and self.credentials_secret_ref:
            raise ValueError(f"no credentialsSecretRef for type {self.type}: no account is sent")
        if self.type == "jdbc" and self.tls:
            raise ValueError("no tls for type jdbc, which is a file")
        return self

    @model_validator(mode="after")
    def _signed(self) -> IcebergCatalog:
        if self.type == "glue" and self.authentication != "sigv4":
            raise ValueError("authentication sigv4 for type glue, which takes no other")
        if (self.authentication == "sigv4") != (self.sigv4 is not None):
            raise ValueError("sigv4 with a region where authentication is sigv4, and there alone")
        if self.sigv4 and not self.credentials_secret_ref:
            raise ValueError("a credentialsSecretRef with an access key, because authentication is sigv4")
        return self

    @model_validator(mode="after")
    def _not_openly(self) -> IcebergCatalog:
        openly = [uri for uri in (self.uri, self.oauth2.server_uri) if uri.startswith("http:")]
        if self.uri.startswith("http:") and self.tls:
            raise ValueError("an https uri, because tls is given")
        if self.credentials_secret_ref and any(not is_loopback(urlsplit(uri).hostname or "") for uri in openly):
            raise ValueError("an https uri, because the account is sent with each request")
        return self

    @property
    def account_use(self) -> AccountUse | None:
        """None without an account. A signature's secret key is never sent, so the keys of a store's
        Secret may sign, too."""
        account, field = self.credentials_secret_ref, "spec.sink.iceberg.catalog"
        if account is None:
            return None
        if self.authentication == "sigv4":
            names, passwords = ("username", "AWS_ACCESS_KEY_ID"), ("password", "AWS_SECRET_ACCESS_KEY")
            return AccountUse(field, account, username_keys=names, password_keys=passwords)
        return AccountUse(field, account, self.tls.ca_secret_ref.name if self.tls else "")

    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys."""
        account, ca = self.credentials_secret_ref, self.tls.ca_secret_ref if self.tls else None
        keys = account.secrets() if account else {}
        if account and self.authentication == "token":
            keys = {account.name: {account.password_key}}
        return joined(keys, {ca.name: {ca.key}} if ca else {})


Namespace = Annotated[str, Field(strict=True, pattern=_LEVELS, max_length=249)]
FormatVersion = Literal[2, 3]


def check_properties(properties: dict[str, str]) -> dict[str, str]:
    own = sorted(name for name in properties if _OWN_PROPERTY.fullmatch(name))
    if own:
        raise ValueError(f"properties without {', '.join(own)}, which the sink sets itself")
    return properties
