#!/bin/sh
# Provides Debezium's engine with its MySQL connector and Kafka's client.
set -eu

target=${1:?usage: debezium-jars.sh FOLDER}
version=3.3.1.Final

exec "$(dirname "$0")/maven-jars.sh" "$target" "io.debezium:debezium-embedded:$version" \
    "io.debezium:debezium-connector-mysql:$version" org.slf4j:slf4j-simple:1.7.36
