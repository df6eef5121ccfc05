"""What a bundle leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_operator.cli.kubectl.redaction import of_object, of_pod, of_text

HIDE = "hide-7"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{HIDE}@host/x", f"https://{HIDE}@host/x", f"s3 https://host/x?X-Amz-Signature={HIDE}&a=1",
        f"password={HIDE}", f'"password": "{HIDE} and more"', f"PWD = '{HIDE}'", f"Authorization: Bearer {HIDE}",
        f"aws_secret_access_key={HIDE}", f"accessKeyId: {HIDE}", f"fs.s3a.secret.key={HIDE}",
        f"sasl.jaas.config=\"{HIDE}\"", f"token:{HIDE}", f"db_password: {HIDE}",
        f"mysql://user:a@{HIDE}@host/x", f"mysql://user:a/{HIDE}@host/x", f"credential=client:{HIDE}",
        f"AccountKey={HIDE};", f"api_key: {HIDE}", f"PASSPHRASE={HIDE}", f"Bearer {HIDE}abc",
        json.dumps(json.dumps({"password": f"a b\" c {HIDE}", "x": 1})), json.dumps({"password": f"a\" {HIDE}"}),
        json.dumps({"message": f'password="a {HIDE}"'}),
        f"password='it''s {HIDE}'", f"CREATE USER a IDENTIFIED BY '{HIDE}'",
        f"ALTER USER a IDENTIFIED WITH caching_sha2_password BY '{HIDE}'", f"OPTIONS (USER 'a', PASSWORD '{HIDE}')",
        f"OPTIONS (PASSWORD 'cut {HIDE}", f'password: "cut {HIDE}', f'\\"password\\": \\"cut {HIDE}', f"pwd='{HIDE}\\",
        f"-----BEGIN RSA PRIVATE KEY-----\nabc\n{HIDE}\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_what_has_the_form_of_credentials_is_hidden(text: str) -> None:
    assert HIDE not in of_text(text)
    assert "(hidden)" in of_text(text)


def test_what_follows_a_hidden_value_stays() -> None:
    inner = json.dumps({"password": 'a" b', "table": "shop.orders"})
    assert "shop.orders" in of_text(inner)
    assert "shop.orders" in of_text(json.dumps(inner))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("piece", ["a", "://", "://a?", "a@", "password", 'password=\\"', "'", "identified "])
def test_a_long_line_costs_little(piece: str) -> None:
    of_text(piece * (100_000 // len(piece)))


@pytest.mark.parametrize("text", ["shop.orders: ALTER TABLE orders", "https://host/path/x", "3 tokens", "lag 4 s"])
def test_other_text_stays(text: str) -> None:
    assert of_text(text) == text


@pytest.mark.parametrize(
    "value",
    [
        {"env": [{"name": "ANY", "value": HIDE}]},
        {"sparkConf": {"spark.any": HIDE}},
        {"metadata": {"annotations": {"any": HIDE}}},
        {"containers": [{"args": [HIDE], "command": ["sh", HIDE]}]},
        {"finished": [{"start": None, "end": [HIDE, 7]}, {"start": [HIDE, 9], "end": None}], "any": 1},
    ],
)
def test_values_are_hidden_by_their_place(value: dict[str, Any]) -> None:
    found = json.dumps(of_object(value))
    assert HIDE not in found
    assert "any" in found.lower() or "args" in found


#: maps of free texts that schedulers and selectors read, or that are numbers
HARMLESS = {"labels", "matchLabels", "nodeSelector", "limits", "requests"}


def free_maps(schema: dict[str, Any], name: str = "") -> Iterator[str]:
    """Fields of the spec whose keys are the user's."""
    if schema.get("additionalProperties"):
        yield name
    for field, inner in (schema.get("properties") or {}).items():
        yield from free_maps(inner, field)
    if "items" in schema:
        yield from free_maps(schema["items"], name)


def test_every_map_of_free_texts_of_a_spec_is_hidden() -> None:
    crd = yaml.safe_load((Path(__file__).resolve().parents[3] / "crds" / "cdcsync.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    names = set(free_maps(spec)) - HARMLESS
    assert {"sparkConf", "producerConfig"} <= names
    assert [name for name in names if HIDE in json.dumps(of_object({name: {"any": HIDE}}))] == []


def test_of_a_pod_only_what_it_runs_and_how_it_fares_is_taken() -> None:
    container = {"name": "driver", "image": "x", "env": [{"name": "A", "value": HIDE}], "args": [HIDE]}
    pod = {
        "metadata": {"name": "p", "annotations": {"a": HIDE}},
        "spec": {"containers": [container], "volumes": [{"name": HIDE}]},
        "status": {"phase": "Running", "message": f"password={HIDE}"},
    }
    found = of_pod(pod)
    assert HIDE not in json.dumps(found)
    assert found["spec"]["containers"] == [{"name": "driver", "image": "x"}]
    assert found["status"]["phase"] == "Running"
