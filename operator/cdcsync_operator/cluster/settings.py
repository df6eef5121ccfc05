"""What the Deployment sets for the operator: environment variables, as the chart sets them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdcsync_core.errors import Reason, fail
from cdcsync_core.resource.quantity import parse_seconds
from cdcsync_operator.cluster.objects.driver_pod import POD_IDS, Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.policy.source_networks import refused_networks
from cdcsync_operator.cluster.syncs.namespaces import NamespaceRule
from cdcsync_operator.cluster.syncs.selector import parse_selector

_PREFIX = "CDCSYNC_"
#: as the chart's `metrics.podMonitor.sampleLimit`
SAMPLE_LIMIT = 20_000


@dataclass(frozen=True)
class OperatorSettings:
    """`namespaces` says which are watched. `lease` is `namespace/name` of the operator's lock, and
    of the Deployment that owns it. `selector` is a label selector of the syncs that are
    this release's, empty: all of them; `sample_limit` the most samples of its page of metrics,
    `tables_of_sync` the most tables of a sync on that page, 0: none;
    `refused_egress` the networks that NetworkPolicies keep runs from, None: egress is free.
    `refuse_nodes`, `refuse_ranges`: no source is on a node, or among pods and Services."""

    image: Image
    policy: PodPolicy = field(default_factory=PodPolicy)
    namespaces: NamespaceRule = field(default_factory=NamespaceRule)
    lease: str = ""
    identity: str = ""
    workers: int = 8
    metrics_port: int = 8080
    network_policies: bool = False
    selector: str = ""
    sample_limit: int = SAMPLE_LIMIT
    tables_of_sync: int = 0
    refused_egress: tuple[str, ...] | None = None
    refuse_nodes: bool = False
    refuse_ranges: bool = False

    @property
    def release(self) -> str:
        """The name of this release that the admission policy of its runs knows: its lease's."""
        return self.lease.replace("/", ".")


def from_environment(environment: Mapping[str, str] = os.environ) -> OperatorSettings:
    """Raises SpecInvalid where the default image of drivers is missing."""
    env = _Environment(environment)
    policy = _policy(env)
    return OperatorSettings(
        _image(env, policy.refused_source_networks),
        policy,
        _namespaces(env),
        env.text("LEASE"),
        environment.get("HOSTNAME", "operator"),
        int(env.text("WORKERS", "4")),
        int(env.text("METRICS_PORT", "8080")),
        env.flag("NETWORK_POLICIES", default=False),
        _selector(env, "SELECTOR"),
        int(env.text("SAMPLE_LIMIT", str(SAMPLE_LIMIT))),
        int(env.text("TABLES_OF_SYNC", "0")),
        env.list("REFUSED_EGRESS") if env.has("REFUSED_EGRESS") else None,
        env.flag("REFUSE_NODES", default=False),
        env.flag("REFUSE_RANGES", default=False),
    )


@dataclass(frozen=True)
class _Environment:
    """The variables with the product's prefix."""

    variables: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        return self.variables.get(_PREFIX + name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        return self.text(name, str(default).lower()) == "true"

    def list(self, name: str) -> tuple[str, ...]:
        """Separated by commas or blanks."""
        return tuple(self.text(name).replace(",", " ").split())

    def has(self, name: str) -> bool:
        return _PREFIX + name in self.variables


def _image(env: _Environment, refused_networks: tuple[str, ...]) -> Image:
    if not env.text("DRIVER_IMAGE"):
        raise fail(
            Reason.SPEC_INVALID,
            "no CDCSYNC_DRIVER_IMAGE",
            needed="the image of drivers",
            remedy="set it in the Deployment",
        )
    return Image(
        env.text("DRIVER_IMAGE"),
        env.text("IMAGE_PULL_POLICY", "IfNotPresent"),
        env.list("IMAGE_PULL_SECRETS"),
        refused_networks,
        _pod_ids(env.text("POD_IDS")),
    )


def _pod_ids(text: str) -> tuple[tuple[str, int], ...]:
    """A JSON object, as the chart writes it; empty: those of the images."""
    if not text:
        return POD_IDS
    try:
        ids = {str(name): int(value) for name, value in json.loads(text).items()}
        names = {name for name, _ in POD_IDS}
        if not ids.keys() <= names:
            raise ValueError(f"{sorted(ids.keys() - names)}")
    except (ValueError, TypeError, AttributeError) as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"CDCSYNC_POD_IDS: {error}",
            needed="a JSON object of runAsUser, runAsGroup and fsGroup",
            remedy="correct the chart's value podSecurityContext",
        ) from None
    return tuple(sorted(ids.items()))


def _policy(env: _Environment) -> PodPolicy:
    networks = env.list("REFUSED_SOURCE_NETWORKS") if env.has("REFUSED_SOURCE_NETWORKS") else None
    return PodPolicy(
        allow_pod_template=env.flag("ALLOW_POD_TEMPLATE", default=True),
        allowed_service_accounts=frozenset(env.list("ALLOWED_SERVICE_ACCOUNTS")),
        allowed_images=env.list("ALLOWED_IMAGES"),
        allowed_in_pod_template=frozenset(env.list("ALLOWED_IN_POD_TEMPLATE")),
        allowed_spark_conf=env.list("ALLOWED_SPARK_CONF"),
        refused_source_networks=_refused_networks(networks, env.variables),
        allowed_environment=env.list("ALLOWED_ENVIRONMENT"),
        allowed_annotations=env.list("ALLOWED_POD_ANNOTATIONS"),
        allowed_pull_secrets=(*env.list("IMAGE_PULL_SECRETS"), *env.list("ALLOWED_PULL_SECRETS")),
        secrets_name_hosts=env.flag("SECRETS_NAME_HOSTS", default=False),
        least_restart_seconds=_least_restart(env.text("MIN_RESTART_BACKOFF") or "5s"),
    )


def _namespaces(env: _Environment) -> NamespaceRule:
    selector = _selector(env, "NAMESPACE_SELECTOR")
    return NamespaceRule(env.list("NAMESPACES"), selector, env.text("NAMESPACE_ROLE"), env.text("ACCOUNT"))


def _selector(env: _Environment, name: str) -> str:
    text = env.text(name).strip()
    try:
        parse_selector(text)
    except ValueError as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"CDCSYNC_{name}: {error}",
            needed="a label selector, such as shard=one or team in (a, b)",
            remedy="correct the chart's values selector and namespaceSelector",
        ) from None
    return text


def _least_restart(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"CDCSYNC_MIN_RESTART_BACKOFF: {text!r}",
            needed=str(error),
            remedy="correct the chart's value policy.minRestartBackoff",
        ) from None


def _refused_networks(networks: tuple[str, ...] | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return refused_networks(networks, environment)
    except ValueError as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"CDCSYNC_REFUSED_SOURCE_NETWORKS: {error}",
            needed="networks such as 169.254.0.0/16",
            remedy="correct the chart's value policy.refusedSourceNetworks",
        ) from None
