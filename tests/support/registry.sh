#!/bin/sh
# Provides a schema registry with Confluent's API: Apicurio's, by Maven, which proves it by its checksum.
#
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: registry.sh FOLDER}
version=2.6.13.Final
making="$target.making.$$"

mkdir -p "$making/app"
making=$(cd "$making" && pwd)
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
(cd "$making" && mvn -q -B -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dmdep.stripVersion=true \
    -Dartifact=io.apicurio:apicurio-registry-app:$version:tar.gz:all -DoutputDirectory="$making")
tar -xzf "$making"/apicurio-registry-app-all.tar.gz -C "$making/app"
rm "$making"/apicurio-registry-app-all.tar.gz
rm -rf "$target"
mv "$making" "$target"
