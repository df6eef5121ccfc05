#!/bin/sh
# Provides Debezium's engine with its connector for MySQL or MariaDB and Kafka's client.
set -eu

target=${1:?usage: debezium-jars.sh FOLDER mysql|mariadb VERSION}

exec "$(dirname "$0")/maven-jars.sh" "$target" "io.debezium:debezium-embedded:$3" \
    "io.debezium:debezium-connector-$2:$3" org.slf4j:slf4j-simple:1.7.36
