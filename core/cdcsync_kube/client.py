"""The API server over HTTPS: JSON in, JSON out. The only code that calls it, for the operator and
for drivers; a thin adapter over the official client.

The client gives what is hard: logins, TLS, proxies and the pool of connections. The dozen calls of
this product are on plain objects, so its generated methods and models are not used, and an answer
is read here, within bounds.

Why it is right: every step of a call has a timeout, and the call as a whole another, however slowly
its bytes come. A call whose connection the server has closed is repeated once, unless it is a POST,
whose repeat would answer 409 for our own object: the caller decides what that means. A refused
login is renewed once. A redirection is no answer: it would take the token along. An answer has a
bound of bytes, which is more than one object may have: a page of a list that exceeds it is asked
for again with fewer objects, so that no tenant's large objects fill the memory of the reader; what
nests too deeply for Python's parser is an error like any other, but in a list: there one object
would hide all others, and what nests so deeply is left out.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cdcsync_core.errors import CdcError
from cdcsync_core.peer_json import NestsTooDeeply, cut_below, parse_json
from cdcsync_kube.login import Access, Login

if TYPE_CHECKING:
    from urllib3 import PoolManager

TIMEOUT = 30.0
#: how many times its step's timeout a call may take as a whole
_STEPS = 4
#: idle connections that are kept at most
_IDLE = 64
#: bytes of an answer; one object has at most about 3 MiB
ANSWER_BYTES = 8 * 2**20
#: of an object's metadata, what is kept: beside owners the labels and annotations that are read;
#: by a prefix they would be as many as a tenant writes, or the wrong ones
_KEPT = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
LABELS = ("cdcsync.io/sync", "cdcsync.io/run", "cdcsync.io/part", "cdcsync.io/kind")
ANNOTATIONS = ("cdcsync.io/stop-asked", "cdcsync.io/planned")
_MOST_OWNERS, _LONGEST_VALUE = 32, 1024
#: of the objects of a list, where one nests too deeply; no field that is read has half as many
_LEVELS = 100
_TOO_LARGE, _UNREADABLE = "AnswerTooLarge", "AnswerUnreadable"
_JSON = "application/json"
#: names this program to the API server, also as the manager of the fields that it has written
MANAGER = "cdcsync"
METADATA_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA_ONLY = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
Object = dict[str, Any]


class ApiError(Exception):
    """The server refused, or could not be reached (`status` 0). `reason` is the API's word
    (`AlreadyExists`, ...)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message
        super().__init__(f"{status} {reason}: {message}" if status else message)

    @property
    def gone(self) -> bool:
        return self.status == http.client.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Another writer was first: the object exists, or has changed."""
        return self.status == http.client.CONFLICT

    @property
    def unreadable(self) -> bool:
        """The answer has come, and is more than is read, or no JSON object."""
        return self.reason in (_TOO_LARGE, _UNREADABLE)

    @property
    def transient(self) -> bool:
        return self.status in (0, 408, 409, 429) or self.status >= 500


class Api:
    """One server. `timeout` is how many seconds each step of a call may wait."""

    def __init__(self, login: Login, timeout: float = TIMEOUT) -> None:
        self.login, self._timeout = login, timeout
        self._lock = threading.Lock()
        self._manager: PoolManager | None = None
        self._connecting: tuple[object, ...] = ()
        self.calls = 0

    @property
    def server(self) -> str:
        return self.login.server

    def with_timeout(self, timeout: float) -> Api:
        """The same server by connections of its own, with another timeout."""
        return Api(self.login, timeout)

    def close(self) -> None:
        """Ends all connections; no thread may be in a call."""
        if self._manager is not None:
            self._manager.clear()

    def get(self, path: str, **query: str) -> Object:
        return self._call("GET", path, query)

    def text(self, path: str, **query: str) -> str:
        """An answer that is no JSON: a log. It is bounded like any other."""
        target = path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        status, text = self._authorized("GET", target, None, {"Accept": "*/*", "User-Agent": MANAGER})
        if status >= http.client.MULTIPLE_CHOICES:
            raise _refusal(status, text)
        return text.decode(errors="replace")

    def metadata(self, path: str, **query: str) -> Iterator[Object]:
        """The metadata of a list's objects, without the objects: names, times, owners, and those
        of `LABELS` and `ANNOTATIONS`. The rest may be a megabyte that any tenant wrote."""
        return (essential(item["metadata"]) for item in self.items(path, METADATA_LIST, 500, **query))

    def metadata_of(self, path: str) -> Object:
        """The metadata of one object, without the object."""
        return essential(self._call("GET", path, {}, accept=METADATA_ONLY)["metadata"])

    def items(self, path: str, accept: str = _JSON, page: int = 500, **query: str) -> Iterator[Object]:
        """The objects of a list, at most so many at once; a value of too many levels is None."""
        token = ""
        while True:
            asked = query | {"limit": str(page)} | ({"continue": token} if token else {})
            try:
                part = self._call("GET", path, asked, accept=accept, parse=_list)
            except ApiError as error:
                if error.reason != _TOO_LARGE or page == 1:
                    raise
                page = max(1, page // 8)
                continue
            yield from part.get("items") or []
            token = part.get("metadata", {}).get("continue", "")
            if not token:
                return

    def create(self, path: str, body: Object) -> Object:
        return self._call("POST", path, {}, body)

    def replace(self, path: str, body: Object) -> Object:
        """Refused with a conflict if the body's resourceVersion is not the newest."""
        return self._call("PUT", path, {}, body)

    def merge(self, path: str, body: Object) -> Object:
        """A JSON merge patch (RFC 7386)."""
        return self._call("PATCH", path, {}, body, "application/merge-patch+json")

    def delete(self, path: str, body: Object | None = None, **query: str) -> None:
        """What is not there any more counts as deleted."""
        try:
            self._call("DELETE", path, query, body)
        except ApiError as error:
            if not error.gone:
                raise

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        kind: str = _JSON,
        accept: str = _JSON,
        parse: Callable[[bytes], Any] = parse_json,
    ) -> Object:
        target = path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Accept": accept, "User-Agent": MANAGER, "Content-Type": kind}
        status, text = self._authorized(method, target, content, headers)
        if status >= http.client.MULTIPLE_CHOICES:
            raise _refusal(status, text)
        try:
            answer = parse(text) if text else {}
        except ValueError as error:
            raise ApiError(0, _UNREADABLE, f"{path}: the API server's answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise ApiError(0, _UNREADABLE, f"{path}: the API server's answer is no object")
        return answer

    def _authorized(
        self, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """A login that the server refuses may have ended before its time."""
        try:
            access = self.login.access()
            status, text = self._send(access, method, target, content, headers)
            if status == http.client.UNAUTHORIZED and (other := self.login.renewed(access)):
                return self._send(other, method, target, content, headers)
        except CdcError as error:
            raise ApiError(0, "", f"no login at the API server: {error}") from None
        return status, text

    def _send(
        self, access: Access, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Repeated where the server has closed the connection, which it may do at any time."""
        authorization = {"Authorization": access.authorization} if access.authorization else {}
        arguments = (access, method, target, content, headers | authorization)
        if method == "POST":
            return self._exchange(*arguments)
        try:
            return self._exchange(*arguments)
        except ApiError as error:
            if not _was_closed(error.__cause__):
                raise
        return self._exchange(*arguments)

    def _exchange(
        self, access: Access, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        from urllib3.exceptions import HTTPError

        from cdcsync_kube.timed_pool import TimedCall

        self.calls += 1
        seconds = _STEPS * self._timeout
        deadline = TimedCall(seconds)
        try:
            with deadline:
                answer = self._answer(access, method, target, content, headers)
        except (OSError, HTTPError, http.client.HTTPException) as error:
            if not deadline.over:
                why = f"{type(error).__name__}: {error}"
                raise ApiError(0, "", f"the API server does not answer: {why}") from error
        if deadline.over:  # its end may look like the end of an answer
            raise ApiError(0, "", f"the API server does not answer: not all in {seconds:g} s")
        return answer

    def _answer(
        self, access: Access, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        response = self._pool(access).request(
            method,
            access.configuration.host.rstrip("/") + target,
            body=content,
            headers=headers,
            timeout=self._timeout,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            text = b""
            while len(text) <= ANSWER_BYTES and (part := response.read(ANSWER_BYTES + 1 - len(text))):
                text += part
            if len(text) > ANSWER_BYTES:
                raise ApiError(0, _TOO_LARGE, f"{target}: the API server's answer has more than {ANSWER_BYTES} bytes")
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return response.status, text

    def _pool(self, access: Access) -> PoolManager:
        """The client's, for as long as connections are made in the same way."""
        from kubernetes.client.rest import RESTClientObject

        from cdcsync_kube.timed_pool import timed

        with self._lock:
            if self._manager is None or self._connecting != access.connecting:
                self.close()
                access.configuration.connection_pool_maxsize = _IDLE
                self._manager = timed(RESTClientObject(access.configuration).pool_manager)
                self._connecting = access.connecting
            return self._manager


def _was_closed(error: BaseException | None) -> bool:
    """urllib3 wraps what TLS says when the server ends the connection while a call is sent."""
    from urllib3.exceptions import ProtocolError, SSLError

    ends = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    by_tls = isinstance(error, SSLError) and bool(error.args) and isinstance(error.args[0], ends)
    return by_tls or isinstance(error, ProtocolError)


def essential(about: Object) -> Object:
    """An object's metadata without what may be of any size."""
    named = {name: about[name] for name in _KEPT if name in about}
    for part, names in (("labels", LABELS), ("annotations", ANNOTATIONS)):
        texts = about.get(part) or {}
        named[part] = {name: texts[name] for name in names if 0 < len(texts.get(name, "")) <= _LONGEST_VALUE}
    owners = (about.get("ownerReferences") or [])[:_MOST_OWNERS]
    named["ownerReferences"] = [{k: owner[k] for k in ("kind", "name", "uid") if k in owner} for owner in owners]
    return named


def _list(text: bytes) -> Any:
    try:
        return parse_json(text)
    except NestsTooDeeply:
        return parse_json(cut_below(text.decode(), _LEVELS))


def _refusal(status: int, text: bytes) -> ApiError:
    try:
        answer = parse_json(text)
        return ApiError(status, str(answer.get("reason", "")), str(answer.get("message", "")))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:500].decode(errors="replace"))
