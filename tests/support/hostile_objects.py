"""A tenant who may create CdcSyncs, Secrets and ConfigMaps in one namespace, and writes whatever
the API server takes: random and hostile objects, changed and deleted again."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from cdcsync_kube.client import Api, ApiError, Object

_SYNCS = "/apis/cdcsync.io/v1alpha1/namespaces/{}/cdcsyncs"
_KIND = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync"}
_LOGIN: Object = {"credentialsSecretRef": {"name": "login"}}
_TLS: Object = {"tls": {"caSecretRef": {"name": "login", "key": "tls.crt"}}}
SOURCES: tuple[Object, ...] = (
    {"host": "h", **_LOGIN},
    {"host": "h", "credentialsSecretRef": {"name": "login", "usernameKey": "password", "passwordKey": "tls.crt"}},
    {"hosts": ["h", "i"], **_LOGIN, **_TLS},
    {"host": "h", "snapshotHost": "i", **_LOGIN},
)
STARTS: tuple[Object, ...] = (
    {"from": "snapshot"},
    {"from": "latest"},
    {"from": "position", "file": "binlog.000001", "offset": 4},
    {"from": "gtid", "gtidSet": "0-1-1"},
    {"from": "timestamp", "timestamp": "2026-01-01T00:00:00Z"},
)
_KAFKA: Object = {"bootstrapServers": "h:1,i:1", "staging": {"path": "s3://a/b", **_LOGIN}}
_REGISTRY: Object = {"url": "https://h", **_LOGIN, **_TLS}
SINKS: tuple[Object, ...] = (
    {"delta": {"path": "s3://a/b"}},
    {"kafka": {**_KAFKA, **_TLS, "sasl": {"mechanism": "PLAIN", **_LOGIN}}},
    {"kafka": {**_KAFKA, "format": "debezium-avro", "schemaRegistry": _REGISTRY}},
    {"iceberg": {"catalog": {"uri": "https://h", **_LOGIN, **_TLS}}},
    {"iceberg": {"catalog": {"uri": "https://h", "authentication": "sigv4", "sigv4": {"region": "r"}, **_LOGIN}}},
    {"mysql": {"host": "h", **_LOGIN, **_TLS}},
    {"postgresql": {"host": "h", "database": "d", **_LOGIN, "tls": {"mode": "required", "allowUnverified": True}}},
)
_ANNOTATIONS = [f"cdcsync.io/{name}" for name in ("hosts", "allow-unverified", "username-key", "password-key")]
#: as deep as the API server's decoder takes
_LEVELS = 9_900
_TEXTS = (
    "",
    "x",
    "\x00",
    "\u202e\ufffd\U0001f600",
    "{{",
    "-" * 300,
    "x" * 20_000,
    "9" * 5_000,
    "1e999",
    "NaN",
    "null",
    "[" * 900,
)
_CONSENTS = (*_TEXTS, "true", "h, i", "password", "tls.crt")
#: labels, and annotations with their prefix, that are not read and are listed before those that are
_ALIKE = {f"{prefix}/a{n}": "x" for prefix in ("app.kubernetes.io", "cdcsync.io") for n in range(40)}


class HostileTenant:
    """Writes into `namespace` until it is stopped; `written` counts what the API server took.

    It begins with many objects of four syncs: `reports` of runs that are not there, and `shards` of
    a megabyte with the tables of one of them; `flooding` while it does."""

    def __init__(self, api: Api, namespace: str, seed: int, reports: int = 0, shards: int = 0) -> None:
        self._api, self._namespace = api, namespace
        self._reports, self._shards, self.flooding = reports, shards, reports + shards > 0
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self.written = self.refused = 0
        #: what was written, by the way
        self.kinds: Counter[str] = Counter()
        self._core = f"/api/v1/namespaces/{namespace}"
        self._ways = (
            self._sync,
            self._sync,
            self._report,
            self._report,
            self._overwrite,
            self._overwrite,
            self._tables,
            self._secret,
            self._change,
            self._delete,
            self._event,
            self._pod,
            self._status,
            self._apply,
        )
        self._uids: dict[str, str] = {}

    @contextmanager
    def writing(self) -> Iterator[HostileTenant]:
        sys.setrecursionlimit(60_000)
        thread = threading.Thread(target=self._write, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join(600)

    def _write(self) -> None:
        if self.flooding:
            self._flood()
        while not self._stopping.is_set():
            self._try(self._random.choice(self._ways))

    def _try(self, way: Callable[..., None], *arguments: Any) -> None:
        try:
            way(*arguments)
        except ApiError:
            self.refused += 1
        else:
            self.written += 1
            self.kinds[way.__name__.strip("_")] += 1

    def _flood(self) -> None:
        path, spec = _SYNCS.format(self._namespace), {"source": SOURCES[0], "sink": SINKS[0]}
        bodies = [_KIND | {"metadata": {"name": f"flood-{n}"}, "spec": spec} for n in range(4)]
        syncs = [self._api.create(path, body | {"spec": spec | {"tables": {"include": ["a.*"]}}}) for body in bodies]
        with ThreadPoolExecutor(8) as pool:
            for n in range(self._reports):
                pool.submit(self._try, self._forged_report, syncs[n % 4], n)
            for n in range(self._shards):
                pool.submit(self._try, self._padded_shard, syncs[0], n)
        counted = {"status": {"tables": {"total": self._shards}, "tableStatus": []}}
        self._api.merge(f"{path}/flood-0/status", counted)
        self.flooding = False

    def _forged_report(self, sync: Object, number: int) -> None:
        """A report of a run of its own, each second one not the first of the run."""
        run = f"{sync['metadata']['name']}-{number:04x}-1"
        about = {"name": f"{run}-report-{number // 4 % 2}", "labels": _ALIKE | {"cdcsync.io/run": run}}
        self._create_owned(sync, "report", about | {"annotations": dict.fromkeys([*_ALIKE][-32:], "x" * 1000)}, {})

    def _padded_shard(self, sync: Object, number: int) -> None:
        """One with a single table of its status, and padding."""
        entry = {"name": f"a.t{number:05d}", "phase": "Streaming", "message": "x" * (2**20 - 1000)}
        data = {"tables": json.dumps([entry])}
        self._create_owned(sync, "tables", {"name": f"{sync['metadata']['name']}-tables-{number}"}, data)

    def _create_owned(self, sync: Object, part: str, about: Object, data: dict[str, str]) -> None:
        of_sync = sync["metadata"]
        labels = about.get("labels", {}) | {"cdcsync.io/sync": of_sync["name"], "cdcsync.io/part": part}
        owner = _KIND | {"name": of_sync["name"], "uid": of_sync["uid"]}
        about = about | {"labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
        self._api.create(f"{self._core}/configmaps", body)

    def _name(self) -> str:
        return f"hostile-{self._random.randrange(100)}"

    def _value(self, depth: int = 0) -> Any:
        pick = self._random.randrange(9 if depth < 4 else 6)
        if pick < 3:
            return self._random.choice(_TEXTS)
        if pick < 6:
            return self._random.choice((0, -1, 2**63, 10**300, 1.5, True, None))
        if pick == 6:
            return [self._value(depth + 1) for _ in range(self._random.randrange(8))]
        return {self._random.choice(_TEXTS)[:60]: self._value(depth + 1) for _ in range(self._random.randrange(6))}

    def _spec(self) -> Object:
        parts = {"source": SOURCES, "start": STARTS, "sink": SINKS}
        drawn = {part: self._random.choice(values) for part, values in parts.items()}
        spec: Object = json.loads(json.dumps({"tables": {"include": ["a.*"]}, **drawn}))
        for _ in range(self._random.randrange(4)):
            part = self._random.choice([*spec, "driver", "executors", "stream", "sparkConf", "autoRestart"])
            inner = self._section(spec.setdefault(part, {}))
            if isinstance(inner, dict) and self._random.random() < 0.7:
                inner[self._random.choice([*inner, "podTemplate", "memory", "x"])] = self._value()
            else:
                spec[part] = self._value()
        return spec

    def _section(self, value: Any) -> Any:
        """It, or one below it."""
        below = [inner for inner in value.values() if isinstance(inner, dict)] if isinstance(value, dict) else []
        return self._section(self._random.choice(below)) if below and self._random.random() < 0.7 else value

    def _about(self, name: str) -> Object:
        about: Object = {"name": name}
        if self._random.random() < 0.3:
            about["annotations"] = {f"a{n}": "x" * 20_000 for n in range(self._random.randrange(12))}
        if self._random.random() < 0.3:
            about["managedFields"] = [self._managed() for _ in range(self._random.randrange(1, 4))]
        if self._random.random() < 0.2:
            about["labels"] = {f"label-{n}": "x" * 60 for n in range(self._random.choice((10, 5_000)))}
        if self._random.random() < 0.2:
            owner = _KIND | {"name": "x" * 200, "uid": "u" * 200}
            about["ownerReferences"] = [owner] * self._random.choice((1, 2_000))
        if self._random.random() < 0.2:
            about["finalizers"] = [f"hostile.io/{n}" for n in range(self._random.choice((1, 3_000)))]
        return self._in_any_order(about)

    def _in_any_order(self, value: Object) -> Object:
        """The same fields."""
        return dict(self._random.sample(sorted(value.items()), len(value)))

    def _managed(self) -> Object:
        fields: Object = {}
        for _ in range(self._random.choice((10, 1_000, _LEVELS))):
            fields = {"f:a": fields}
        about = {"manager": "m", "operation": "Update", "apiVersion": "cdcsync.io/v1alpha1", "fieldsType": "FieldsV1"}
        return about | {"fieldsV1": fields, "time": "2026-01-01T00:00:00Z"}

    def _sync(self) -> None:
        name, spec = self._name(), self._spec()
        body = self._in_any_order(_KIND | {"metadata": self._about(name), "spec": spec})
        self._uids[name] = self._api.create(_SYNCS.format(self._namespace), body)["metadata"]["uid"]
        self.kinds.update(f"sync to {kind}" for kind in spec["sink"])

    def _owned(self, name: str, part: str, run: str) -> Object:
        owner = self._random.choice([*self._uids] or ["hostile-0"])
        labels = {"cdcsync.io/sync": owner, "cdcsync.io/run": f"{owner}-{run}", "cdcsync.io/part": part}
        reference = _KIND | {"name": owner, "uid": self._uids.get(owner, "u"), "controller": True}
        many = {f"label-{n}": "x" * 60 for n in range(5_000)}
        more = self._random.choice(({}, _ALIKE, many))
        return {"name": f"{owner}-{name}", "labels": labels | more, "ownerReferences": [reference]}

    def _report(self) -> None:
        run = f"{self._random.randrange(2**16):04x}-1"
        about = self._owned(f"{run}-report-{self._random.randrange(4)}", "report", run)
        data = {key: self._json() for key in self._random.sample(["run", "head", "tables"], 2)}
        self._api.create(
            f"{self._core}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
        )

    def _overwrite(self) -> None:
        """What a driver of its own syncs reports into."""
        path = f"{self._core}/configmaps"
        found = [about["name"] for about in self._api.metadata(path, labelSelector="cdcsync.io/part=report")]
        if found:
            data = {key: self._json() for key in self._random.sample(["run", "head", "tables"], 2)}
            self._api.merge(f"{path}/{self._random.choice(found)}", {"data": data})

    def _tables(self) -> None:
        about = self._owned(f"tables-{self._random.randrange(1000)}", "tables", "x")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"tables": self._json()}}
        self._api.create(f"{self._core}/configmaps", body)

    def _json(self) -> str:
        entry = {
            "number": self._random.choice((1, -1, 10**30, "x", None)),
            "entries": [self._value() for _ in range(50)],
        }
        return self._random.choice((
            json.dumps(entry), json.dumps(self._value()), "[" * 100_000, '{"entries":[' + "1," * 200_000 + "1]}",
            '{"number":1,"number":"x","entries":["\\ud800",{"name":"a.b","number":9,"finished":[[[]]]}]}',
            '{"entries":[' + ",".join(['{"name":"a.b","number":1e9,"low":{"anchor":{}}}'] * 9_000) + "]}",
            '{"number":' + "9" * 100_000 + "}", '{"tables":' + json.dumps([["t" * 200, 0]] * 2_000) + "}",
        ))  # fmt: skip

    def _secret(self) -> None:
        about = {
            "name": self._random.choice(("login", self._name())), "labels": {"cdcsync.io/source": "true"},
            "annotations": {name: self._random.choice(_CONSENTS) for name in self._random.sample(_ANNOTATIONS, 2)},
        }  # fmt: skip
        kind = self._random.choice(("Opaque", "kubernetes.io/basic-auth", "custom/" + "x" * 100))
        texts = {
            "username": "u",
            "password": "x" * self._random.choice((1, 500_000)),
            "tls.crt": self._random.choice(_TEXTS),
        }
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "type": kind, "stringData": texts}
        self._api.create(f"{self._core}/secrets", body)

    def _change(self) -> None:
        self._api.merge(f"{_SYNCS.format(self._namespace)}/{self._name()}", {"spec": self._spec()})

    def _event(self) -> None:
        """Creates an event of a sync of another tenant, or of its own."""
        target = _KIND | {"namespace": self._namespace, "name": self._name(), "uid": self._random.choice(_TEXTS)[:60]}
        body = {
            "metadata": {"generateName": "hostile-"}, "involvedObject": target, "reason": "x" * 128,
            "message": self._random.choice(_TEXTS)[:1000], "type": self._random.choice(("Normal", "Warning")),
        }  # fmt: skip
        self._api.create(f"{self._core}/events", body)

    def _pod(self) -> None:
        """As if it were a run's driver."""
        run = f"{self._random.randrange(2**16):04x}-1"
        about = self._owned(f"{run}-driver", "driver", run)
        variables = [{"name": f"V{n}", "value": "x" * 1000} for n in range(self._random.choice((0, 900)))]
        container = {"name": "driver", "image": "x", "env": variables}
        made = self._api.create(f"{self._core}/pods", {"metadata": about, "spec": {"containers": [container]}})
        phase = self._random.choice(("Running", "Failed", "Succeeded"))
        message = self._random.choice(_TEXTS)[:4000]
        self._api.merge(
            f"{self._core}/pods/{made['metadata']['name']}/status", {"status": {"phase": phase, "message": message}}
        )

    def _status(self) -> None:
        """Writes a status of any form to a sync of its own, with runs and tables that are not
        there."""
        named = {
            "id": f"{self._name()}-{self._random.randrange(2**16):04x}-1",
            "epoch": self._random.choice((1, 2**62)),
        }
        tables = [{"name": f"a.t{n}", "phase": "Streaming"} for n in range(self._random.choice((1, 1_000)))]
        status = {"tableStatus": tables, "runs": {"stream": named}, "tables": {"total": 10**6}}
        chosen = self._random.choice((self._value(), status, {"position": self._value()}, {"source": self._value()}))
        self._api.merge(f"{_SYNCS.format(self._namespace)}/{self._name()}/status", {"status": chosen})

    def _apply(self) -> None:
        """Server-side, in YAML, with many managers."""
        name = self._name()
        body = _KIND | {
            "metadata": {"name": name, "labels": {f"l{self._random.randrange(500)}": "x"}},
            "spec": self._spec(),
        }
        path = f"{_SYNCS.format(self._namespace)}/{name}"
        query = {"fieldManager": f"m{self._random.randrange(50)}", "force": "true"}
        self._api._call("PATCH", path, query, body, "application/apply-patch+yaml")

    def _delete(self) -> None:
        folder = self._random.choice((_SYNCS.format(self._namespace), f"{self._core}/secrets"))
        self._api.delete(f"{folder}/{self._name()}")
