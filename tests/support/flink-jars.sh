#!/bin/sh
# Provides Flink SQL with its Kafka connector and the formats that the tests read.
set -eu

target=${1:?usage: flink-jars.sh FOLDER}
flink=2.0.0

set -- org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0 org.slf4j:slf4j-simple:1.7.36
for artifact in flink-table-planner-loader flink-table-runtime flink-table-api-java-bridge flink-clients flink-connector-base flink-json; do
    set -- "$@" "org.apache.flink:$artifact:$flink"
done
exec "$(dirname "$0")/maven-jars.sh" "$target" "$@"
