"""The API server over HTTPS: JSON in, JSON out. The only code that speaks to it, for the operator
and for drivers.

Why it exists: both need a dozen calls on plain objects; a generated client costs tens of megabytes
in every driver. Why it is right: a connection belongs to one thread; a kept one that the server has
closed meanwhile is opened again, once, for calls that may be repeated (all but POST, whose repeat
would answer 409 for our own object: the caller decides what that means). Every call has a timeout.
The token is reread for each call, because the kubelet rotates it. An answer has a bound of bytes,
which is more than one object may have: a page of a list that exceeds it is asked for again with
fewer objects, so that no tenant's large objects fill the memory of the reader.
"""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterator
from typing import Any

TIMEOUT = 30.0
#: bytes of an answer; one object has at most about 3 MiB
ANSWER_BYTES = 8 * 2**20
#: of an object's metadata, what is kept: labels and annotations of this product, owners
_KEPT = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_PREFIXES = ("cdcsync.io/", "app.kubernetes.io/")
_MOST_ENTRIES, _LONGEST_VALUE = 32, 1024
_TOO_LARGE = "AnswerTooLarge"
_JSON = "application/json"
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
    def transient(self) -> bool:
        return self.status in (0, 408, 409, 429) or self.status >= 500


class Api:
    """One server. `token()` is asked before each call, "" for none; `timeout` is how many seconds
    each of its steps may wait."""

    def __init__(
        self, server: str, tls: ssl.SSLContext | None, token: Callable[[], str], timeout: float = TIMEOUT
    ) -> None:
        self.server, self.tls, self.token, self._timeout = server, tls, token, timeout
        parts = urllib.parse.urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._kept = threading.local()
        self._opened: weakref.WeakSet[_OfThread] = weakref.WeakSet()
        self.calls = 0

    def with_timeout(self, timeout: float) -> Api:
        """The same server by connections of its own, with another timeout."""
        return Api(self.server, self.tls, self.token, timeout)

    def close(self) -> None:
        """Ends the connections of all threads; none of them may be in a call."""
        for mine in list(self._opened):
            mine.connection.close()
        self._kept = threading.local()

    def get(self, path: str, **query: str) -> Object:
        return self._call("GET", path, query)

    def metadata(self, path: str, **query: str) -> Iterator[Object]:
        """The metadata of a list's objects, without the objects: names, times, owners, and the
        labels and annotations of this product. The rest may be a megabyte that any tenant
        wrote."""
        return (essential(found["metadata"]) for found in self.items(path, METADATA_LIST, 500, **query))

    def metadata_of(self, path: str) -> Object:
        """Of one object, without the object."""
        return essential(self._call("GET", path, {}, accept=METADATA_ONLY)["metadata"])

    def items(self, path: str, accept: str = _JSON, page: int = 500, **query: str) -> Iterator[Object]:
        """The objects of a list, at most so many at once."""
        token = ""
        while True:
            asked = query | {"limit": str(page)} | ({"continue": token} if token else {})
            try:
                part = self._call("GET", path, asked, accept=accept)
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
    ) -> Object:
        target = self._base + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Accept": accept, "User-Agent": "cdcsync", "Content-Type": kind}
        if token := self.token():
            headers["Authorization"] = f"Bearer {token}"
        status, text = self._send(method, target, content, headers)
        if status >= http.client.BAD_REQUEST:
            raise _refusal(status, text)
        try:
            return dict(json.loads(text)) if text else {}
        except ValueError:
            raise ApiError(0, "", "the API server's answer is not JSON") from None

    def _send(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        kept: _OfThread | None = getattr(self._kept, "mine", None)
        connection = (kept or self._open()).connection
        try:
            return self._exchange(connection, method, target, content, headers)
        except (OSError, http.client.HTTPException) as error:
            self._close(connection)
            if kept is None or method == "POST":
                raise ApiError(0, "", f"the API server does not answer: {type(error).__name__}: {error}") from None
        return self._send(method, target, content, headers)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        content: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes]:
        self.calls += 1
        connection.request(method, target, content, headers)
        response = connection.getresponse()
        text = response.read(ANSWER_BYTES + 1)
        if len(text) > ANSWER_BYTES:
            self._close(connection)
            raise ApiError(0, _TOO_LARGE, f"an answer of the API server has more than {ANSWER_BYTES} bytes")
        if response.will_close:
            self._close(connection)
        return response.status, text

    def _open(self) -> _OfThread:
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
            if self.tls is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self.tls)
        )
        self._kept.mine = mine = _OfThread(connection)
        self._opened.add(mine)
        return mine

    def _close(self, connection: http.client.HTTPConnection) -> None:
        self._kept.mine = None
        connection.close()


class _OfThread:
    """A thread's connection, which is closed when the thread has ended."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


def essential(about: Object) -> Object:
    """An object's metadata without what may be of any size."""
    kept = {name: about[name] for name in _KEPT if name in about}
    for part in ("labels", "annotations"):
        kept[part] = _of_the_product(about.get(part) or {})
    owners = (about.get("ownerReferences") or [])[:_MOST_ENTRIES]
    kept["ownerReferences"] = [{k: owner[k] for k in ("kind", "name", "uid") if k in owner} for owner in owners]
    return kept


def _of_the_product(texts: Object) -> Object:
    ours = ((k, v) for k, v in texts.items() if k.startswith(_PREFIXES) and len(str(v)) <= _LONGEST_VALUE)
    return dict(itertools.islice(ours, _MOST_ENTRIES))


def _refusal(status: int, text: bytes) -> ApiError:
    try:
        answer = json.loads(text)
        return ApiError(status, str(answer.get("reason", "")), str(answer.get("message", "")))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:500].decode(errors="replace"))
