"""What the Deployment sets for the operator: environment variables, as the chart sets them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdcsync_core.errors import Reason, fail
from cdcsync_core.quantity import parse_seconds
from cdcsync_operator.cluster.driver_pod import Image
from cdcsync_operator.cluster.pod_policy import Policy
from cdcsync_operator.cluster.source_networks import refused_networks

_PREFIX = "CDCSYNC_"


@dataclass(frozen=True)
class OperatorSettings:
    """`namespaces` are watched, none: all of them. `lease` is `namespace/name` of the lock that the
    operator holds."""

    image: Image
    policy: Policy = field(default_factory=Policy)
    namespaces: tuple[str, ...] = ()
    lease: str = ""
    identity: str = ""
    workers: int = 4
    metrics_port: int = 8080
    network_policies: bool = False


def from_environment(environment: Mapping[str, str] = os.environ) -> OperatorSettings:
    """Raises SpecInvalid where the default image of drivers is missing."""

    def env(name: str, default: str = "") -> str:
        return environment.get(_PREFIX + name, default)

    def named(name: str) -> bool:
        return _PREFIX + name in environment

    def env_list(name: str) -> tuple[str, ...]:
        return tuple(env(name).replace(",", " ").split())

    if not env("DRIVER_IMAGE"):
        raise fail(
            Reason.SPEC_INVALID,
            "no CDCSYNC_DRIVER_IMAGE",
            needed="the image of drivers",
            remedy="set it in the Deployment",
        )
    return OperatorSettings(
        Image(env("DRIVER_IMAGE"), env("IMAGE_PULL_POLICY", "IfNotPresent"), env_list("IMAGE_PULL_SECRETS")),
        Policy(
            allow_pod_template=env("ALLOW_POD_TEMPLATE", "true") == "true",
            allowed_service_accounts=frozenset(env_list("ALLOWED_SERVICE_ACCOUNTS")),
            allowed_images=env_list("ALLOWED_IMAGES"),
            allowed_in_pod_template=frozenset(env_list("ALLOWED_IN_POD_TEMPLATE")),
            allowed_spark_conf=env_list("ALLOWED_SPARK_CONF"),
            refused_source_networks=_refused_networks(
                env_list("REFUSED_SOURCE_NETWORKS") if named("REFUSED_SOURCE_NETWORKS") else None, environment
            ),
            least_restart_seconds=_least_restart(env("MIN_RESTART_BACKOFF") or "5s"),
        ),
        env_list("NAMESPACES"),
        env("LEASE"),
        environment.get("HOSTNAME", "operator"),
        int(env("WORKERS", "4")),
        int(env("METRICS_PORT", "8080")),
        env("NETWORK_POLICIES", "false") == "true",
    )


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
