"""A schema registry by Confluent's API, as far as a producer and `verify` need it: a schema is
registered, and has an id from then on, by which it is found again.

Why it is right: registration is idempotent, so every run registers what it writes with; an id is
the registry's own and never another schema's, so both are remembered. Every request is bounded in
time, by a clock and not by silence, and in what is read of its answer. A redirection is no answer:
it would take the password along. Credentials and the authority are read from their files for each
request, and no text of an error holds a credential. The certificate of an https url is verified
always, and names its host.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cdcsync_core.account_texts import hidden_texts, without_texts
from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.quoting import quoted
from cdcsync_spark.sinks.kafka.connection.client import credential
from cdcsync_spark.sinks.kafka.connection.timed_http import Deadline

_ATTEMPTS = 3
_ANSWER_BYTES = 1 << 20
_TYPE = "application/vnd.schemaregistry.v1+json"
_OK = 200
_FIELD = "spec.sink.kafka.schemaRegistry.url"
_PASSING = (408, 429)
#: a record has four bytes for the id of its schema
_IDS = range(1 << 31)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


#: status -> what it means
_Refusals = Mapping[int, tuple[Reason, str]]


@dataclass(frozen=True)
class _Question:
    """`doing` says what the registry did not do where it fails; a body is sent by POST; `refusals`
    go before those of every question; `table` is the one that a refusal stops."""

    path: str
    doing: str
    body: dict[str, Any] | None = None
    refusals: _Refusals = field(default_factory=dict)
    table: str = ""


@dataclass(frozen=True)
class Registry:
    """The registry at `url`; `account` has the files `username` and `password`, None for one
    without logins; `ca` is the file of the authority of its certificate, None: those that the
    machine knows. `seconds` bounds one attempt; `pause` seconds are between the first two, and
    twice as many before the third."""

    url: str
    account: tuple[Path, Path] | None = None
    ca: Path | None = None
    seconds: float = 10.0
    pause: float = 0.5
    _ids: dict[tuple[str, str], int] = field(default_factory=dict, compare=False, repr=False)
    _schemas: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)

    def check(self) -> None:
        """Asks for the rules that hold for all subjects, which changes nothing. Raises CdcError."""
        self._asked(_Question("/config", "did not tell its rules"))

    def register(self, subject: str, schema: dict[str, Any], table: str = "") -> int:
        """The schema's id, for records of `table`; asked once per process. Raises CdcError."""
        text = json.dumps(schema)
        schema_id = self._ids.get((subject, text))
        if schema_id is None:
            path, doing = f"/subjects/{quote(subject, safe='')}/versions", f"did not register a schema of {subject}"
            asked = _Question(path, doing, {"schema": text}, table=table)
            schema_id = self._asked(asked).get("id")
            if type(schema_id) is not int or schema_id not in _IDS:
                raise self._fail(asked, Reason.SPEC_INVALID, "its answer has no id", _NOT_ONE)
            self._ids[subject, text] = schema_id
        return schema_id

    def schema(self, number: int) -> Any:
        """The schema that has this id; asked once per process. Raises CdcError."""
        if number not in self._schemas:
            asked = _Question(f"/schemas/ids/{number}", f"did not give the schema {number} of a record", None, _GONE)
            try:
                self._schemas[number] = parse_json(self._asked(asked)["schema"])
            except (KeyError, TypeError, ValueError):
                raise self._fail(asked, Reason.SPEC_INVALID, "its answer has no schema", _NOT_ONE) from None
        return self._schemas[number]

    def _asked(self, question: _Question) -> dict[str, Any]:
        """Tried again where that may help, within a bound."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._once(question)
            except CdcError as error:
                if not error.reason.retried or attempt == _ATTEMPTS - 1:
                    raise
            time.sleep(self.pause * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, question: _Question) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 (the spec's url is http or https)
            self.url.rstrip("/") + question.path,
            None if question.body is None else json.dumps(question.body).encode(),
            {"Content-Type": _TYPE, "Accept": _TYPE},
        )
        if self.account is not None:
            login = ":".join(map(credential, self.account))
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        with Deadline(self.seconds, _FIELD) as deadline:
            try:
                return self._answer(question, request, deadline)
            except CdcError:
                if not deadline.over:
                    raise
                raise self._away(question, f"it did not answer within {self.seconds:g} s") from None

    def _answer(self, question: _Question, request: urllib.request.Request, deadline: Deadline) -> dict[str, Any]:
        opener = urllib.request.build_opener(_NoRedirects, *deadline.handlers(self._context()))
        try:
            status, body = _exchanged(opener, request, self.seconds)
        except (OSError, HTTPException) as error:
            raise self._unanswered(question, getattr(error, "reason", error)) from None
        if status != _OK:
            raise self._refused(question, status, self._without_login(_message(body)))
        try:
            document = parse_json(body)
        except ValueError:
            raise self._fail(question, Reason.SPEC_INVALID, "its answer is no JSON", _NOT_ONE) from None
        return document if isinstance(document, dict) else {}

    def _context(self) -> ssl.SSLContext | None:
        """Verifies by the authority that is given, and no other; without one urllib's own does."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError:
            raise fail(
                Reason.SPEC_INVALID,
                f"no readable certificate in {self.ca.parent.name}/{self.ca.name}",
                needed="a PEM file with the authority of the schema registry",
                remedy=f"correct the Secret of spec.sink.kafka.schemaRegistry.tls.caSecretRef, {RUN_AGAIN}",
            ) from None

    def _unanswered(self, question: _Question, cause: object) -> CdcError:
        if isinstance(cause, ssl.SSLCertVerificationError):
            problem = f"its certificate is refused: {quoted(cause.verify_message)}"
            return self._fail(question, Reason.AUTHENTICATION_FAILED, problem, _UNTRUSTED)
        return self._away(question, quoted(str(cause)) or type(cause).__name__)

    def _without_login(self, text: str) -> str:
        """Should the registry have repeated it."""
        return without_texts(text, hidden_texts(*self.account)) if self.account else text

    def _refused(self, question: _Question, status: int, text: str) -> CdcError:
        problem = f"it answered {status}{': ' + quoted(text) if text else ''}"
        if status in _PASSING or status >= 500:
            return self._away(question, problem)
        reason, remedy = {**_REFUSALS, **question.refusals}.get(status, (Reason.SPEC_INVALID, _NOT_ONE))
        return self._fail(question, reason, problem, remedy)

    def _away(self, question: _Question, problem: str) -> CdcError:
        return self._fail(question, Reason.SINK_UNREACHABLE, problem, "check that the registry is up, and its url")

    def _fail(self, question: _Question, reason: Reason, problem: str, remedy: str) -> CdcError:
        return fail(
            reason,
            f"the schema registry {self.url} {question.doing}: {problem}",
            needed="a registry that takes and has the schemas of this sync's records",
            remedy=remedy if reason.retried else f"{remedy}, {RUN_AGAIN}",
            table="" if reason.retried else question.table,
        )


_NOT_ONE = "correct spec.sink.kafka.schemaRegistry.url: the API is Confluent's"
_UNTRUSTED = (
    "correct the Secret of spec.sink.kafka.schemaRegistry.tls.caSecretRef to the authority of the registry's "
    "certificate, or the host of schemaRegistry.url to one that the certificate names"
)
_REFUSALS: _Refusals = {
    401: (Reason.AUTHENTICATION_FAILED, "correct the Secret of spec.sink.kafka.schemaRegistry"),
    403: (Reason.PRIVILEGE_MISSING, "let the account register schemas of the subject"),
    409: (
        Reason.SINK_CONFLICT,
        "relax the subject's compatibility, or give the table its definition before and resnapshot it",
    ),
    422: (Reason.SINK_CONFLICT, "compare the subject's rules with the schema in the registry's text"),
}
_GONE: _Refusals = {
    404: (
        Reason.SINK_CONFLICT,
        "restore the registry's schemas, or stop the topic's other writer; or resnapshot the table",
    )
}


def _exchanged(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float
) -> tuple[int, bytes]:
    """Status and body, whose first MiB is read. Every answer that is not of the kind 2xx is an
    HTTPError to urllib."""
    try:
        with opener.open(request, timeout=seconds) as answer:
            return _OK, answer.read(_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_ANSWER_BYTES)


def _message(body: bytes) -> str:
    """The registry's own words, in its form; "" for another answer, which may be that of any server
    that the url leads to, and is shown nowhere."""
    try:
        document = parse_json(body)
        return str(document["message"])[:2000] if type(document["error_code"]) is int else ""
    except (ValueError, KeyError, TypeError):
        return ""
