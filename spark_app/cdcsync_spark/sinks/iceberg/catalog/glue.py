"""A catalog in AWS Glue: its table of a name has the place of the newest `metadata.json` as a
parameter, as Iceberg's `GlueCatalog` has it, so every engine with that one finds what is written
here. No JVM, and no client of AWS: six calls of JSON, signed (`sigv4`), by the connection of all
catalogs, which checks addresses, times and sizes.

Why it is right: for a commit (`pointer`) Glue changes the table if its version (`VersionId`) still
is the one of which the parameter was read, and names the file that the commit was decided on. What
speaks Glue's interface without that check would change the table whatever is expected, so before
its first commit a process asks for a change of a version that there is not. Nothing is sent twice:
once a change was sent, all but a refusal leaves its outcome unknown, and the file stays.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.quoting import quoted
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.iceberg.catalog.connection import (
    FIELD,
    CatalogServer,
    HttpAnswer,
    NoAnswer,
    Request,
    host_of,
    trusting,
)
from cdcsync_spark.sinks.iceberg.catalog.glue_columns import glue_columns
from cdcsync_spark.sinks.iceberg.catalog.login import hidden_of
from cdcsync_spark.sinks.iceberg.catalog.metadata_files import MetadataStores
from cdcsync_spark.sinks.iceberg.catalog.pointer import (
    NEWEST,
    PointerCatalog,
    first_parameters,
    location_in,
    next_parameters,
)
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, Json, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4

_MISSING, _THERE, _CONCURRENT = "EntityNotFoundException", "AlreadyExistsException", "ConcurrentModificationException"
#: of the memory, for an answer once it is parsed
_SHARE = 4
#: what Glue takes of a table to change it
_TAKEN = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)


@dataclass(frozen=True)
class GlueSettings:
    """Glue at `uri`, whose requests `login` signs; `ca` is the file of the authority of its
    certificate, None: those that the machine knows. `seconds` bounds one request."""

    uri: str
    login: SigV4
    ca: Path | None = None
    seconds: float = 30.0


@dataclass(frozen=True)
class _GlueAnswer:
    """An answer: the type of its error, empty for none, and the JSON object that it has."""

    status: int
    error: str
    body: Mapping[str, Any] = field(repr=False)

    @property
    def undecided(self) -> bool:
        """Whether a change may have been made."""
        if self.status == 200:
            return bool(self.error)
        return self.status >= 500 or self.error in ("OperationTimeoutException", "InternalServiceException")


class _GlueSession:
    """What is known of the service while this process uses it: never pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server: CatalogServer | None = None
        self.checks_versions = False


@dataclass(frozen=True)
class GlueCatalog(PointerCatalog):
    """See `Catalog`. Tables lie below `warehouse`."""

    settings: GlueSettings
    warehouse: str
    stores: MetadataStores
    _session: _GlueSession = field(default_factory=_GlueSession, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[GlueCatalog], tuple[Any, ...]]:
        return type(self), (self.settings, self.warehouse, self.stores)

    def check(self) -> None:
        """Asks for a database, which may be refused to this account: changes nothing. Raises
        CdcError."""
        answer = self._asked("GetDatabases", {"MaxResults": 1}, doing := "did not list its databases")
        if answer.error not in ("", "AccessDeniedException"):
            self._refuse(answer, doing)

    def newest(self, table: CatalogTableName) -> str | None:
        entry = self._entry(table, f"did not give the table {table.shown}")
        return None if entry is None else location_in(entry.get("Parameters") or {}, table)

    def insert(self, table: CatalogTableName, metadata: Json, location: str) -> None:
        doing, database = f"did not create the table {table.shown}", table.namespace[0]
        self._create_database(database, doing)
        created = {
            "Name": table.name,
            "TableType": "EXTERNAL_TABLE",
            "Owner": "cdcsync",
            "Parameters": first_parameters(metadata, location),
            "StorageDescriptor": {"Location": metadata["location"], "Columns": glue_columns(metadata)},
        }
        answer = self._asked("CreateTable", {"DatabaseName": database, "TableInput": created}, doing)
        if answer.error == _THERE:
            raise CommitLost("the table is there already")
        self._refuse_error(answer, doing)

    def move(self, table: CatalogTableName, before: str, after: Json, location: str) -> bool:
        doing = f"did not commit to the table {table.shown}"
        entry = self._entry(table, doing)
        if entry is None or (entry.get("Parameters") or {}).get(NEWEST) != before:
            return False
        version = str(entry.get("VersionId") or "")
        self._refuse_without_check(table, entry, version)
        changed = {name: entry[name] for name in _TAKEN if name in entry}
        changed["Parameters"] = next_parameters(entry["Parameters"], before, location)
        described = entry.get("StorageDescriptor") or {}
        changed["StorageDescriptor"] = {**described, "Location": after["location"], "Columns": glue_columns(after)}
        self._change(table, changed, version, doing)
        return True

    def drop(self, table: CatalogTableName) -> None:
        doing = f"did not remove the table {table.shown}"
        answer = self._asked("DeleteTable", {"DatabaseName": table.namespace[0], "Name": table.name}, doing)
        if answer.error != _MISSING:
            self._refuse_error(answer, doing)

    # -- Glue's calls

    def _entry(self, table: CatalogTableName, doing: str) -> Mapping[str, Any] | None:
        answer = self._asked("GetTable", {"DatabaseName": table.namespace[0], "Name": table.name}, doing)
        if answer.error == _MISSING:
            return None
        self._refuse_error(answer, doing)
        entry = answer.body.get("Table")
        if not isinstance(entry, dict):
            raise self._fail(doing, Reason.SPEC_INVALID, "its answer has no table", _NOT_ONE)
        return entry

    def _create_database(self, name: str, doing: str) -> None:
        answer = self._asked("GetDatabase", {"Name": name}, doing)
        if answer.error == _MISSING:
            answer = self._asked("CreateDatabase", {"DatabaseInput": {"Name": name}}, doing)
        if answer.error != _THERE:
            self._refuse_error(answer, doing)

    def _change(self, table: CatalogTableName, changed: Json, version: str, doing: str) -> None:
        """Raises CommitLost and OutcomeUnknown."""
        try:
            answer = self._sent("UpdateTable", _update(table, changed, version))
        except NoAnswer as error:
            if error.sent:
                raise OutcomeUnknown(f"Glue at {self.settings.uri} {doing}: {error.found}") from None
            raise self._unanswered(doing, error) from None
        if answer.error in (_CONCURRENT, _MISSING):
            raise CommitLost("another commit came first")
        if answer.undecided:
            raise OutcomeUnknown(f"Glue at {self.settings.uri} {doing}: {_shown(answer)}")
        self._refuse_error(answer, doing)

    def _refuse_without_check(self, table: CatalogTableName, entry: Mapping[str, Any], version: str) -> None:
        """Once a process: asks for no change of a version that there is not."""
        if self._session.checks_versions:
            return
        doing = f"cannot commit to the table {table.shown}"
        if not version.isdecimal():
            raise self._fail(doing, Reason.SPEC_INVALID, "its tables have no versions", _UNCHECKED)
        same = {name: entry[name] for name in _TAKEN if name in entry}
        answer = self._asked("UpdateTable", _update(table, same, str(int(version) + 1_000_000)), doing)
        if not answer.error:
            raise self._fail(doing, Reason.SPEC_INVALID, "it changes a table of another version", _UNCHECKED)
        if answer.error not in (_CONCURRENT, _MISSING, "InvalidInputException"):
            self._refuse(answer, doing)
        self._session.checks_versions = True

    # -- requests

    def _asked(self, operation: str, body: Json, doing: str) -> _GlueAnswer:
        """Raises CdcError where no answer comes."""
        try:
            return self._sent(operation, body)
        except NoAnswer as error:
            raise self._unanswered(doing, error) from None

    def _sent(self, operation: str, body: Json) -> _GlueAnswer:
        headers = {
            "Accept": "application/json",
            "User-Agent": "cdcsync",
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"AWSGlue.{operation}",
        }
        path = urlsplit(self.settings.uri).path or "/"
        request = Request("POST", path, headers, json.dumps(body).encode())
        answer = self._server.ask(self.settings.login.signed(request, host_of(self.settings.uri)))
        return _parsed(answer if answer.status == 200 else answer.without(hidden_of(self.settings.login)))

    @property
    def _server(self) -> CatalogServer:
        with self._session.lock:
            if self._session.server is None:
                parts, context = urlsplit(self.settings.uri), partial(trusting, self.settings.ca)
                self._session.server = CatalogServer(
                    f"{parts.scheme}://{parts.netloc}", f"{FIELD}.uri", context, self.settings.seconds
                )
            return self._session.server

    # -- errors

    def _refuse_error(self, answer: _GlueAnswer, doing: str) -> None:
        if answer.error:
            self._refuse(answer, doing)

    def _refuse(self, answer: _GlueAnswer, doing: str) -> NoReturn:
        passing = answer.status >= 500 or answer.status == 429 or answer.error in _PASSING
        other = (Reason.SINK_UNREACHABLE, _AWAY) if passing else (Reason.SPEC_INVALID, _NOT_ONE)
        reason, remedy = _REFUSALS.get(answer.error, other)
        raise self._fail(doing, reason, _shown(answer), remedy)

    def _unanswered(self, doing: str, error: NoAnswer) -> CdcError:
        if error.untrusted:
            return self._fail(doing, Reason.AUTHENTICATION_FAILED, error.found, f"correct {FIELD}.tls or {FIELD}.uri")
        return self._fail(doing, Reason.SINK_UNREACHABLE, error.found, _AWAY)

    def _fail(self, doing: str, reason: Reason, found: str, remedy: str) -> CdcError:
        return fail(
            reason,
            f"Glue at {self.settings.uri} {doing}: {found}",
            needed="AWS Glue, which lets this sync write its tables",
            remedy=remedy if reason.retried else f"{remedy}, {RUN_AGAIN}",
        )


_NO_JSON = "no JSON"
_AWAY = f"check that Glue is up, and {FIELD}.uri"
_NOT_ONE = f"compare Glue's text with {FIELD}; the uri is one like https://glue.eu-central-1.amazonaws.com"
_UNCHECKED = f"use AWS Glue, or a catalog of another type in {FIELD}"
_ACCOUNT = (
    f"correct the access key in the Secret of {FIELD}.credentialsSecretRef, {FIELD}.sigv4, or this machine's clock"
)
_RIGHTS = "let the account get, create and update tables of the database, and create the database if it is missing"
_PASSING = (
    "ConcurrentModificationException",
    "InternalServiceException",
    "OperationTimeoutException",
    "ResourceNotReadyException",
    "ServiceUnavailableException",
    "ThrottlingException",
    "TooManyRequestsException",
)
_REFUSALS: Mapping[str, tuple[Reason, str]] = {
    "AccessDeniedException": (Reason.PRIVILEGE_MISSING, _RIGHTS),
    **dict.fromkeys(
        (
            "ExpiredTokenException",
            "IncompleteSignatureException",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "MissingAuthenticationTokenException",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ),
        (Reason.AUTHENTICATION_FAILED, _ACCOUNT),
    ),
}


def _update(table: CatalogTableName, changed: Json, version: str) -> Json:
    """Glue keeps no versions of its own: those of the table are the snapshots."""
    return {
        "DatabaseName": table.namespace[0],
        "TableInput": changed,
        "SkipArchive": True,
        "VersionId": version,
    }


def _parsed(answer: HttpAnswer) -> _GlueAnswer:
    try:
        body = parse_json(answer.body or b"{}", most=memory_limit() // _SHARE)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return _GlueAnswer(answer.status, _NO_JSON, {})
    kind = str(body.get("__type") or f"HTTP {answer.status}").rpartition("#")[2]
    return _GlueAnswer(answer.status, "" if answer.status == 200 else kind, body)


def _shown(answer: _GlueAnswer) -> str:
    """Glue's own words, in its form. Another answer may be that of any server that the uri leads
    to, and is left out of errors."""
    texts = [answer.error, answer.body.get("Message") or answer.body.get("message")] if "__type" in answer.body else []
    return ": ".join((f"it answered {answer.status}", *(quoted(str(text)) for text in texts if text)))
