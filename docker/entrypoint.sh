#!/bin/bash
# driver FOLDER: a run of cdcsync. executor: what Spark asks of an image, described by its driver in the environment. Else: a command.
set -euo pipefail
case ${1:-} in
driver) exec python -m cdcsync_spark.app.pod "$2" ;;
executor)
    # SPARK_JAVA_OPT_0, _1, ... in the order of their numbers
    mapfile -t given < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/[^=]*=//' || true)
    # the first compiler only, as in drivers, unless the user says otherwise: the work is Python's
    options=(-XX:TieredStopAtLevel=1 "${given[@]}")
    # the class archives of drivers with tasks; they are taken where the class path is theirs, else left
    archive=$(compgen -G '/opt/cdcsync/share/cdcsync/*.tasks.jsa' | head -1 || true)
    options+=(${archive:+"-XX:SharedArchiveFile=${archive/%.tasks.jsa/.jsa}:$archive" -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0})
    # The secret by which it knows its driver. Spark's own reading of the file needs spark.master, which an executor learns from its driver;
    # a driver takes the file's bytes in base64.
    secret=/etc/cdcsync/auth/secret
    if [ -f "$secret" ]; then _SPARK_AUTH_SECRET=$(base64 -w0 "$secret"); export _SPARK_AUTH_SECRET; fi
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" "@$SPARK_HOME/class-path" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*) exec "$@" ;;
esac
