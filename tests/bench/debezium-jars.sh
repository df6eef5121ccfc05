#!/bin/sh
# Provides Debezium's engine with its MySQL connector and Kafka's client, by Maven.
#
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: debezium-jars.sh FOLDER}
version=3.3.1.Final
making="$target.making.$$"

mkdir -p "$making/jars"
making=$(cd "$making" && pwd)
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$making/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>cdcsync</groupId><artifactId>debezium</artifactId><version>1</version><dependencies>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>$version</version></dependency>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-mysql</artifactId><version>$version</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
POM
(cd "$making" && mvn -q -B -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$making/jars")
rm "$making/pom.xml"
rm -rf "$target"
mv "$making" "$target"
