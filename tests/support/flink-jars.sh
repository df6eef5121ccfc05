#!/bin/sh
# Provides Flink SQL with its Kafka connector and the formats that the tests read, as jars by Maven, which proves each by its checksum.
#
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: flink-jars.sh FOLDER}
flink=2.0.0
making="$target.making.$$"

mkdir -p "$making/jars"
making=$(cd "$making" && pwd)
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM

dependency() {
    echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"
}

{
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>cdcsync</groupId><artifactId>flink</artifactId><version>1</version><dependencies>'
    for artifact in flink-table-planner-loader flink-table-runtime flink-table-api-java-bridge flink-clients flink-connector-base flink-json; do
        dependency org.apache.flink $artifact $flink
    done
    dependency org.apache.flink flink-sql-connector-kafka 4.0.1-2.0
    dependency org.slf4j slf4j-simple 1.7.36
    echo '</dependencies></project>'
} >"$making/pom.xml"
(cd "$making" && mvn -q -B -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$making/jars")
rm "$making/pom.xml"
rm -rf "$target"
mv "$making" "$target"
