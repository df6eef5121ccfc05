#!/bin/sh
# Provides a Kafka broker: its jars by Maven, which proves each by its checksum, and the data folder of a node that never ran.
#
# A node without data is made once and copied by each test session, because a JVM that formats costs as much as one that serves.
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: kafka-broker.sh FOLDER}
version=4.3.1
making="$target.making.$$"

mkdir -p "$making/jars"
making=$(cd "$making" && pwd)
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$making/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>cdcsync</groupId><artifactId>broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
(cd "$making" && mvn -q -B -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$making/jars")
cat >"$making/format.properties" <<SETTINGS
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
log.dirs=$making/formatted
SETTINGS
java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$making/jars/*" kafka.tools.StorageTool format \
    -t 5CAjQbWZRRWWSyJzTnUNVw -c "$making/format.properties" >/dev/null 2>"$making/format.log" \
    || { cat "$making/format.log" >&2; exit 1; }
rm "$making/pom.xml" "$making/format.properties" "$making/format.log"
rm -rf "$target"
mv "$making" "$target"
