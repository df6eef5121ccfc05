"""What a podTemplate must not have by the default policy: of a pod, of a container of ours, of
security contexts, and the variables by which code is run."""

from __future__ import annotations

from typing import Any

from support.forbidden_pods import CLAIM_SOURCES

#: annotations by which injectors add containers, or name their images
INJECTORS = [
    "",
    "sidecar.istio.io/proxyImage",
    "inject.istio.io/templates",
    "config.linkerd.io/proxy-image",
    "vault.hashicorp.com/agent-image",
    "vault.hashicorp.com/agent-inject",
    "instrumentation.opentelemetry.io/inject-java",
    "admission.datadoghq.com/java-lib.custom-image",
    "dapr.io/sidecar-image",
    "prometheus.io/",
]

#: pod -> what is refused of it -> the word of the policy that allows it; "" where none does
PODS: list[tuple[dict[str, Any], str, str]] = [
    ({"hostNetwork": True}, "spec.hostNetwork is refused", ""),
    ({"hostPID": True}, "spec.hostPID is refused", ""),
    ({"hostIPC": True}, "spec.hostIPC is refused", ""),
    ({"hostUsers": True}, "spec.hostUsers is refused", ""),
    ({"shareProcessNamespace": True}, "spec.shareProcessNamespace is refused", ""),
    ({"serviceAccountName": "admin"}, "spec.serviceAccountName is refused", ""),
    ({"restartPolicy": "Always"}, "spec.restartPolicy is refused", ""),
    ({"ephemeralContainers": [{"name": "x"}]}, "spec.ephemeralContainers is refused", ""),
    ({"a_field_of_tomorrow": 1}, "spec.a_field_of_tomorrow is refused", ""),
    ({"containers": None}, "spec.containers is not a list of mappings", ""),
    ({"volumes": ["x"]}, "spec.volumes is not a list of mappings", ""),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volume v: hostPath is refused", ""),
    ({"nodeName": "control-plane-1"}, "spec.nodeName is refused without", "nodeName"),
    ({"priorityClassName": "system-node-critical"}, "spec.priorityClassName is refused without", "priorityClassName"),
    ({"runtimeClassName": "other"}, "spec.runtimeClassName is refused without", "runtimeClassName"),
    ({"hostAliases": [{"ip": "10.0.0.7", "hostnames": ["mysql"]}]}, "spec.hostAliases is refused without", "dns"),
    ({"dnsConfig": {"nameservers": ["10.0.0.7"]}}, "spec.dnsConfig is refused without", "dns"),
    ({"dnsPolicy": "None"}, "spec.dnsPolicy is refused without", "dns"),
    ({"schedulerName": "mine"}, "spec.schedulerName is refused without", "schedulerName"),
    ({"automountServiceAccountToken": True}, "spec.automountServiceAccountToken is refused without", "tokens"),
    ({"imagePullSecrets": [{"name": "x"}]}, 'the pull secret "x" is refused without', "secrets"),
    ({"tolerations": [{"operator": "Exists"}]}, "a toleration of everything is refused without", "tolerations"),
    ({"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}, "volume v: secret is refused without", "secrets"),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        "volume v: projected of serviceAccountToken is refused without",
        "tokens",
    ),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "x"}}]}}]},
        "volume v: projected of secret is refused without",
        "secrets",
    ),
    *(
        (
            {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {field: value}}}}]},
            f"volume v: {field} of an ephemeral claim is refused without",
            "volumes/persistentVolumeClaim",
        )
        for field, value in CLAIM_SOURCES.items()
    ),
    (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]},
        "volume v: persistentVolumeClaim is refused without",
        "volumes/persistentVolumeClaim",
    ),
    ({"volumes": [{"name": "config", "configMap": {"name": "x"}}]}, "a volume of the name config", "commands"),
]

CONTAINERS: list[tuple[dict[str, Any], str, str]] = [
    ({"command": ["sh"]}, "command is refused without", "commands"),
    ({"args": ["x"]}, "args is refused without", "commands"),
    ({"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}}, "lifecycle is refused without", "commands"),
    ({"env": [{"name": "LD_PRELOAD", "value": "/x"}]}, 'env "LD_PRELOAD" is refused without', "commands"),
    ({"envFrom": [{"configMapRef": {"name": "x"}}]}, "envFrom, whose names are not known,", "commands"),
    (
        {"volumeMounts": [{"name": "tmp", "mountPath": "/opt/cdcsync/bin"}]},
        'a volume at "/opt/cdcsync/bin"',
        "commands",
    ),
    ({"volumeMounts": [{"name": "tmp", "mountPath": "/mnt/../usr"}]}, 'a volume at "/mnt/../usr"', "commands"),
    (
        {"env": [{"name": "TZ", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]},
        "env TZ of a Secret is refused without",
        "secrets",
    ),
    ({"stdin": True}, "stdin is refused", ""),
    ({"securityContext": {"privileged": True}}, "privileged is true; needed", "securityContext"),
    (
        {"securityContext": {"allowPrivilegeEscalation": None}},
        "allowPrivilegeEscalation is true; needed",
        "securityContext",
    ),
    ({"securityContext": None}, "allowPrivilegeEscalation is true; needed", "securityContext"),
    (
        {"securityContext": {"capabilities": {"add": ["NET_RAW"]}}},
        'capabilities.add[] is "NET_RAW"; needed',
        "securityContext",
    ),
    ({"securityContext": {"capabilities": {"drop": []}}}, "capabilities.drop is []; needed", "securityContext"),
    ({"securityContext": {"readOnlyRootFilesystem": False}}, "readOnlyRootFilesystem is not true", "securityContext"),
    ({"securityContext": {"procMount": "Unmasked"}}, 'procMount is "Unmasked"; needed', "securityContext"),
    ({"securityContext": {"runAsUser": 0}}, "runAsUser is 0", "securityContext"),
    ({"ports": [{"containerPort": 1, "hostPort": 1}]}, "hostPort is 1; needed", "securityContext"),
]

CONTEXTS: list[tuple[dict[str, Any], str]] = [
    ({"runAsNonRoot": None}, "runAsNonRoot is false; needed"),
    ({"runAsUser": 0}, "runAsUser is 0"),
    ({"seccompProfile": {"type": "Unconfined"}}, 'seccompProfile.type is "Unconfined"; needed'),
    ({"seccompProfile": None}, 'seccompProfile.type is ""; needed'),
    ({"appArmorProfile": {"type": "Unconfined"}}, 'appArmorProfile.type is "Unconfined"; needed'),
    ({"seLinuxOptions": {"type": "spc_t"}}, 'seLinuxOptions.type is "spc_t"; needed'),
    ({"windowsOptions": {"hostProcess": True}}, "hostProcess is true; needed"),
    ({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}, 'sysctls[].name is "kernel.msgmax"; needed'),
]

#: by which CPython, the JVM, glibc, OpenSSL, bash, Spark, the SDKs of clouds and our own program
#: run code, or read other code than their own
CODE_VARIABLES = [
    "BASH_LOADABLES_PATH", "BASH_XTRACEFD", "INPUTRC", "EXECIGNORE", "CDPATH", "LD_ORIGIN_PATH", "LD_PROFILE", "LD_PROFILE_OUTPUT",
    "LD_DEBUG_OUTPUT", "GETCONF_DIR", "NLSPATH", "NIS_PATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "MALLOC_TRACE", "OPENSSL_CONF_INCLUDE",
    "SSLKEYLOGFILE", "PYTHONEXECUTABLE", "PYTHONCASEOK", "PYTHON_PRESITE", "JAVA_OPTS", "LD_BIND_NOT",
    "JAVA_AOT_OPTIONS", "SPARK_PREPEND_CLASSES", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS", "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CLASSPATH", "HADOOP_HOME", "HADOOP_CLASSPATH",
    "BASH_ENV", "ENV", "BASH_FUNC_set%%", "BASH_FUNC_exec%%", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "IFS", "PATH", "HOME",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "LOCPATH", "LOCALDOMAIN", "HOSTALIASES", "GLIBC_TUNABLES", "MALLOC_CHECK_",
    "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONWARNINGS",
    "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONBREAKPOINT", "PYTHONUSERBASE", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS", "JAVA_HOME", "CLASSPATH", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_JAVA_OPT_0",
    "SPARK_EXTRA_CLASSPATH", "SPARK_DIST_CLASSPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "HADOOP_CONF_DIR", "YARN_CONF_DIR",
    "CDCSYNC_METRICS", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "TMPDIR", "NSS_SSL_ENABLE_RENEGOTIATION", "TZDIR", "A_VARIABLE_OF_TOMORROW", "", "TZ\nX",
]  # fmt: skip
