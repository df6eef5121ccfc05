#!/bin/sh
# Provides Iceberg's library for Spark, SQLite's driver, and the REST catalog of the tests, compiled.
#
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: iceberg-jars.sh FOLDER SPARK_JARS}
spark=${2:?usage: iceberg-jars.sh FOLDER SPARK_JARS}
here=$(cd "$(dirname "$0")" && pwd)
making="$target.making.$$"

trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
"$here/maven-jars.sh" "$making" org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \
    org.xerial:sqlite-jdbc:3.50.3.0 com.globalmentor:hadoop-bare-naked-local-fs:0.1.0
mkdir "$making/classes"
# a JRE has the compiler, but neither a program of its name nor who expands wildcards for it
java -m jdk.compiler/com.sun.tools.javac.Main -cp "$(find "$making/jars" "$spark" -name '*.jar' | paste -sd: -)" -d "$making/classes" "$here/IcebergRestServer.java" "$here/SignedStoreIO.java"
rm -rf "$target"
mv "$making" "$target"
