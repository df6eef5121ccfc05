"""YAML text to a checked resource and its Secrets.

Why it exists: locally a file takes the place of the API server, and it must not mean anything else
than it would there. Why it is right: scalars follow the core schema of YAML 1.2
(https://yaml.org/spec/1.2.2/ 10.3: `on`, `off`, `yes`, `no` and dates are text), a key that is
given twice is refused instead of the last one winning, and all faults of a resource are reported at
once, each with its path, what was found and what is allowed.

No message shows a value of a Secret or of a field that is not known: either might be a password.
For the same reason YAML's own messages lose what they quote (an unquoted password that begins with
`*` is an undefined alias to a parser).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from cdcsync_core.errors import CdcError, ManifestError, Reason
from cdcsync_core.resource.secret_hosts import misdirected
from cdcsync_core.resource.source_bounds import bounded, unreadable
from cdcsync_core.resource.spec import API_VERSIONS, KIND, CdcSync, required_secrets

SECRET_LABEL = "cdcsync.io/source"
Secrets = dict[str, dict[str, SecretStr]]


@dataclass(frozen=True)
class Manifest:
    """One resource, within the bounds of its source's Secret, and the Secrets beside it:
    `secrets[name][key]`."""

    resource: CdcSync
    secrets: Secrets


def load_manifest(texts: Iterable[str]) -> Manifest:
    """One CdcSync and any number of Secrets from YAML documents. Raises SpecInvalid with every
    fault found."""
    documents = [d for text in texts for d in read_yaml(text) if d is not None]
    syncs = [d for d in documents if _kind(d) == KIND]
    secrets = [d for d in documents if _kind(d) == "Secret"]
    if len(syncs) + len(secrets) < len(documents):
        other = next(d for d in documents if _kind(d) not in (KIND, "Secret"))
        raise _invalid([f"a document of kind {_kind(other) or '(none)'}; needed: {KIND} or Secret"])
    if len(syncs) != 1:
        raise _invalid([f"{len(syncs)} documents of kind {KIND}; needed: exactly one"])
    resource = parse_resource(syncs[0])
    by_name = _read_secrets(secrets, resource.metadata.namespace)
    annotations = {d["metadata"]["name"]: _annotations(d) for d in secrets}
    refused = misdirected(resource, annotations) | unreadable(resource, annotations)
    faults = [*missing_secrets(resource, by_name), *refused.values()]
    if faults:
        raise _invalid(faults)
    own = annotations.get(resource.spec.source.credentials_secret_ref.name, {})
    return Manifest(bounded(resource, own), by_name)


def parse_resource(data: Any) -> CdcSync:
    """The checked resource of a document (its `status`, the controller's own, is left aside).
    Raises SpecInvalid."""
    if not isinstance(data, dict):
        raise _invalid([f"{_shape(data)}; needed: a mapping with apiVersion, kind, metadata, spec"])
    if data.get("apiVersion") not in API_VERSIONS:
        raise _invalid([f"apiVersion is {_shown(data.get('apiVersion'))}; needed: {' or '.join(API_VERSIONS)}"])
    try:
        return CdcSync.model_validate({k: v for k, v in data.items() if k != "status"})
    except ValidationError as error:
        raise _invalid([_problem(e) for e in _causes(error)]) from None


def _causes(error: ValidationError) -> list[dict[str, Any]]:
    """Leaves out the faults that a list has only because its items have them."""
    faults = error.errors(include_url=False)
    places = [f["loc"] for f in faults]
    return [dict(f) for f in faults if not any(p[: len(f["loc"])] == f["loc"] and p != f["loc"] for p in places)]


def missing_secrets(resource: CdcSync, secrets: Secrets, unlabelled: Collection[str] = ()) -> list[str]:
    """A phrase per Secret or key that the resource names and that was not given; `unlabelled` are
    there without the label."""
    faults = []
    for name, keys in required_secrets(resource.spec).items():
        if name in unlabelled:
            remedy = f"kubectl label secret -n {resource.metadata.namespace} {name} {SECRET_LABEL}=true"
            faults.append(f'Secret {name} has no label {SECRET_LABEL}: "true", so it is not read; remedy: {remedy}')
            continue
        if name not in secrets:
            faults.append(f'no Secret {name}; needed: one with the label {SECRET_LABEL}: "true" beside the resource')
            continue
        missing = sorted(keys - secrets[name].keys())
        if missing:
            faults.append(f"Secret {name}: no key {', '.join(missing)}")
    return faults


def _kind(document: Any) -> str:
    return str(document.get("kind", "")) if isinstance(document, dict) else ""


def _invalid(faults: list[str]) -> CdcError:
    """One error for all faults, a line each."""
    shown = "\n".join(faults[:20]) + (f"\nand {len(faults) - 20} more" if len(faults) > 20 else "")
    return ManifestError(Reason.SPEC_INVALID, shown, remedy="correct the manifest")


# ---- Secrets


def _read_secrets(documents: list[Any], namespace: str) -> Secrets:
    secrets: Secrets = {}
    for document in documents:
        name = _secret_name(document, namespace)
        if name in secrets:
            raise _invalid([f"Secret {name} twice; needed: once"])
        secrets[name] = _secret_values(name, document)
    return secrets


def _secret_name(document: dict[str, Any], namespace: str) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if (
        not isinstance(metadata, dict)
        or not isinstance(name, str)
        or not re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", name)
    ):
        raise _invalid(["a Secret without a valid metadata.name; needed: lower-case letters, digits, - and ."])
    labels = metadata.get("labels") or {}
    if not isinstance(labels, dict) or labels.get(SECRET_LABEL) != "true":
        raise _invalid([f'Secret {name}: no label {SECRET_LABEL}: "true"; needed: it, as only such Secrets are read'])
    if metadata.get("namespace", namespace) != namespace:
        raise _invalid([f"Secret {name}: another namespace than the resource's; needed: {namespace}"])
    unknown = sorted(set(document) - {"apiVersion", "kind", "metadata", "type", "data", "stringData", "immutable"})
    if unknown:
        raise _invalid([f"Secret {name}: the unknown field {unknown[0]}; needed: data or stringData"])
    return name


def _annotations(document: dict[str, Any]) -> dict[str, str]:
    annotations = document["metadata"].get("annotations") or {}
    if not isinstance(annotations, dict) or not all(isinstance(v, str) for v in annotations.values()):
        raise _invalid(
            [f"Secret {document['metadata']['name']}: annotations that are no texts; needed: a mapping of texts"]
        )
    return annotations


def _secret_values(name: str, document: dict[str, Any]) -> dict[str, SecretStr]:
    """`data` is base64 of UTF-8 text; `stringData` wins over it, as on a cluster."""
    values: dict[str, SecretStr] = {}
    for field, decode in (("data", _decode_base64), ("stringData", str)):
        entries = document.get(field) or {}
        if not isinstance(entries, dict):
            raise _invalid([f"Secret {name}: {field} is {_shape(entries)}; needed: a mapping"])
        for key, value in entries.items():
            if not isinstance(value, str) or not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
                raise _invalid(
                    [f"Secret {name}: {field}.{key} is {_shape(value)}; needed: text (put it between quotes)"]
                )
            try:
                values[key] = SecretStr(decode(value))
            except (binascii.Error, UnicodeDecodeError):
                raise _invalid(
                    [f"Secret {name}: data.{key} is not base64 of UTF-8 text; needed: that, or stringData"]
                ) from None
    return values


def _decode_base64(text: str) -> str:
    return base64.b64decode("".join(text.split()), validate=True).decode()


# ---- what pydantic found, in the words of this product


def _problem(error: dict[str, Any]) -> str:
    path, kind, context = _path(error["loc"]), error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{path} is not known or not built yet; needed: one of {', '.join(_fields(error['loc'][:-1]))}"
    if kind == "missing":
        return f"{path} is missing; needed: a value"
    if kind == "value_error":
        return _refusal(path, str(context.get("error", "")), error.get("input"))
    return f"{path} is {_shown(error.get('input'))}; needed: {_needed(error['msg'], context)}"


def _refusal(path: str, rule: str, given: Any) -> str:
    """A rule that says itself what it found has `; needed: ` in it. What fields mean together is no
    matter of the kind of value that has them."""
    if "; needed: " in rule:
        return f"{path}: {rule}"
    found = "refused" if isinstance(given, dict | list) else _shown(given)
    return f"{path} is {found}; needed: {rule}"


def _needed(message: str, context: dict[str, Any]) -> str:
    if "expected" in context:
        return str(context["expected"])
    if "pattern" in context:
        return f"text like {context['pattern']}"
    text = re.sub(r"^(Input|Value|String|Tuple|Dictionary|List) should (be|have) ", "", message)
    return text[:1].lower() + text[1:]


def _path(location: tuple[Any, ...]) -> str:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location)
    return text.removeprefix(".") or "(the document)"


def _fields(location: tuple[Any, ...]) -> list[str]:
    """The field names that the model at `location` has."""
    model: Any = CdcSync
    for step in location:
        if isinstance(step, int):
            model = _models(model)[0]
            continue
        field = next(f for n, f in model.model_fields.items() if (f.alias or n) == step)
        model = _models(field.annotation)[0]
    return [f.alias or n for n, f in model.model_fields.items()]


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, UnionType) or get_origin(annotation) not in (None, Literal):
        return [m for a in get_args(annotation) for m in _models(a)]
    return []


def _shape(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "nothing" if value is None else type(value).__name__)


def _shown(value: Any) -> str:
    """A short scalar as it was written; `@` may separate a password from a host, so such a text is
    not shown."""
    if isinstance(value, str):
        return "text with @" if "@" in value else repr(value if len(value) <= 80 else value[:77] + "...")
    return str(value).lower() if isinstance(value, bool | int | float) else _shape(value)


# ---- YAML 1.2, core schema


#: a number of more digits is none that any field takes, and its conversion takes long
_MOST_DIGITS = 400
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "map", "seq"))


class _Loader(yaml.SafeLoader):
    """Safe, with the types of YAML 1.2's core schema and without repeated keys.

    A tag may be written at any value (`!!int x`, `!!bool [1]`): what is no value of its tag is
    refused at its place.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}  # type: ignore[misc]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(None, None, "a key that is not text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key for the second time", key.start_mark)
            seen.add(key.value)
        return {k.value: self.construct_object(v, deep=True) for k, v in node.value}

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag not in _TAGS:
            raise yaml.constructor.ConstructorError(None, None, "a tag beyond the core schema", node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, KeyError):
            raise yaml.constructor.ConstructorError(
                None, None, "a value that is none of its tag", node.start_mark
            ) from None

    def construct_number(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        if len(text) > _MOST_DIGITS:
            raise ValueError(text)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if text[:2] in ("0o", "0x") else int(text)

    def construct_decimal(self, node: yaml.ScalarNode) -> float:
        return float(self.construct_scalar(node))

    def construct_map(self, node: yaml.MappingNode) -> dict[Any, Any]:
        return self.construct_mapping(node)


def _implicit(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


_implicit("null", r"~|null|Null|NULL|", "~nN\0")
_Loader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile("^$")))
_implicit("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_implicit("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789")
_implicit("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_decimal)
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_map)


def read_yaml(text: str) -> list[Any]:
    """The documents of a YAML text. Raises SpecInvalid naming line and column, never the text."""
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "an unknown place"
        problem = re.sub(r"'[^']*'|\"[^\"]*\"", "(text)", error.problem or "a fault")
        raise _invalid([f"{problem} at {where} of the YAML"]) from None
    except RecursionError:
        raise _invalid(["values nested too deeply in the YAML"]) from None
    except yaml.YAMLError:
        raise _invalid(["characters that YAML does not allow"]) from None
