#!/bin/sh
# Provides Flink SQL with the MySQL connector of Flink CDC and the format Parquet, by Maven.
#
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: flink-cdc-jars.sh FOLDER}
cdc=3.5.0
flink=1.20.1
hadoop=3.3.6
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
    echo '<groupId>cdcsync</groupId><artifactId>flink-cdc</artifactId><version>1</version><dependencies>'
    for artifact in flink-table-planner-loader flink-table-runtime flink-table-api-java-bridge flink-clients flink-connector-base flink-connector-files flink-parquet; do
        dependency org.apache.flink $artifact $flink
    done
    dependency org.apache.flink flink-sql-connector-mysql-cdc $cdc
    dependency com.mysql mysql-connector-j 8.0.33
    dependency org.apache.hadoop hadoop-client-api $hadoop
    dependency org.apache.hadoop hadoop-client-runtime $hadoop
    dependency org.slf4j slf4j-simple 1.7.36
    echo '</dependencies></project>'
} >"$making/pom.xml"
(cd "$making" && mvn -q -B -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$making/jars")
rm "$making/pom.xml"
rm -rf "$target"
mv "$making" "$target"
