"""A simulated API server: it keeps plain objects by their path, without a kubelet, and refuses what
a test asks it to."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

from cdcsync_core.peer_json import parse_json
from cdcsync_kube.client import Api, ApiError, Object
from support.logins import by_token

#: bytes of data that a ConfigMap may hold
MAX_MAP = 2**20


class FakeApi(Api):
    """`refuse(method, path)` may give the error with which a call is answered, before anything is
    done."""

    def __init__(self) -> None:
        super().__init__(by_token("http://nowhere", ""))
        self.objects: dict[str, Object] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Object | None] = []
        self.refuse: Callable[[str, str], ApiError | None] = lambda method, path: None
        self._version = 0
        self._lock = threading.Lock()

    def with_timeout(self, timeout: float) -> FakeApi:
        return self

    def add(self, folder: str, body: Object) -> Object:
        """As another client would create it."""
        with self._lock:
            return self._create(folder, copy.deepcopy(body))

    def names(self, folder: str) -> set[str]:
        return {path.rpartition("/")[2] for path in self.objects if path.rpartition("/")[0].endswith(folder)}

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        kind: str = "",
        accept: str = "",
        parse: Callable[[bytes], Any] = parse_json,
    ) -> Object:
        self.requests.append((method, path))
        self.bodies.append(body)
        if error := self.refuse(method, path):
            raise error
        with self._lock:
            found = copy.deepcopy(getattr(self, f"_{method.lower()}")(path, query, copy.deepcopy(body)))
        assert isinstance(found, dict)
        return found

    def _get(self, path: str, query: dict[str, str], _: None) -> Object:
        if path in self.objects:
            return self.objects[path]
        if path.rpartition("/")[2].endswith("s"):
            return {"items": list(self._selected(path, query))}
        raise ApiError(404, "NotFound", path)

    def _selected(self, folder: str, query: dict[str, str]) -> Iterator[Object]:
        wanted = [term.split("=", 1) for term in query.get("labelSelector", "").split(",") if term]
        field, _, named = query.get("fieldSelector", "").partition("=")
        for path, found in sorted(self.objects.items()):
            labels = found["metadata"].get("labels", {})
            if field == "metadata.name" and path.rpartition("/")[2] != named:
                continue
            if path.rpartition("/")[0] == folder and all(labels.get(key) == value for key, value in wanted):
                yield found

    def _post(self, folder: str, _: dict[str, str], body: Object) -> Object:
        return self._create(folder, body)

    def _create(self, folder: str, body: Object) -> Object:
        path = f"{folder}/{body['metadata'].get('name', len(self.objects))}"
        if path in self.objects:
            raise ApiError(409, "AlreadyExists", path)
        return self._put_back(path, body)

    def _put(self, path: str, _: dict[str, str], body: Object) -> Object:
        version = body["metadata"].get("resourceVersion")
        if version not in (None, self._existing(path.removesuffix("/status"))["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", path)
        if path.endswith("/status"):
            path = path.removesuffix("/status")
            body = self._existing(path) | {"status": body["status"]}
        return self._put_back(path, body)

    def _patch(self, path: str, _: dict[str, str], body: Object) -> Object:
        return self._put_back(path, _merged(self._existing(path), body))

    def _delete(self, path: str, query: dict[str, str], body: Object | None) -> Object:
        """A deleted pod exists until its grace period is over."""
        wanted = (body or {}).get("preconditions", {}).get("uid")
        if wanted not in (None, self._existing(path)["metadata"]["uid"]):
            raise ApiError(409, "Conflict", path)
        if "/pods/" in path and (body or {}).get("gracePeriodSeconds") != 0:
            self._existing(path)["metadata"].setdefault("deletionTimestamp", "2100-01-01T00:00:00Z")
        else:
            self._existing(path)
            del self.objects[path]
        return {}

    def _existing(self, path: str) -> Object:
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return self.objects[path]

    def _put_back(self, path: str, body: Object) -> Object:
        size = sum(len(text.encode()) for text in body.get("data", {}).values())
        if size > MAX_MAP:
            raise ApiError(422, "Invalid", f"Too long: must have at most {MAX_MAP} bytes")
        self._version += 1
        about: dict[str, Any] = body["metadata"]
        about |= {"resourceVersion": str(self._version)}
        about.setdefault("uid", f"uid-{self._version}")
        about.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.objects[path] = body
        return body


def _merged(found: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict) or not isinstance(found, dict):
        return patch
    changed = {k: _merged(found.get(k, {}), v) for k, v in patch.items() if v is not None}
    return {k: v for k, v in found.items() if k not in patch} | changed
