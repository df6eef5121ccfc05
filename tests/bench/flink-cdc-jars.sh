#!/bin/sh
# Provides Flink SQL with the MySQL connector of Flink CDC and the format Parquet.
set -eu

target=${1:?usage: flink-cdc-jars.sh FOLDER}
flink=1.20.1
hadoop=3.3.6

set --
for artifact in flink-table-planner-loader flink-table-runtime flink-table-api-java-bridge flink-clients flink-connector-base flink-connector-files flink-parquet; do
    set -- "$@" "org.apache.flink:$artifact:$flink"
done
exec "$(dirname "$0")/../support/maven-jars.sh" "$target" "$@" org.apache.flink:flink-sql-connector-mysql-cdc:3.5.0 \
    com.mysql:mysql-connector-j:8.0.33 "org.apache.hadoop:hadoop-client-api:$hadoop" "org.apache.hadoop:hadoop-client-runtime:$hadoop" \
    org.slf4j:slf4j-simple:1.7.36
