#!/bin/sh
# Provides Flink SQL with Iceberg's connector and files of JSON as a source.
set -eu

target=${1:?usage: flink-iceberg-jars.sh FOLDER}
flink=2.0.0
hadoop=3.3.6

set --
for artifact in flink-table-planner-loader flink-table-runtime flink-table-api-java-bridge flink-clients flink-connector-base flink-connector-files flink-json; do
    set -- "$@" "org.apache.flink:$artifact:$flink"
done
exec "$(dirname "$0")/../support/maven-jars.sh" "$target" "$@" org.apache.iceberg:iceberg-flink-runtime-2.0:1.11.0 \
    "org.apache.hadoop:hadoop-client-api:$hadoop" "org.apache.hadoop:hadoop-client-runtime:$hadoop" org.slf4j:slf4j-simple:1.7.36
