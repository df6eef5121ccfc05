#!/bin/sh
# Provides artifacts and what they need at run time, as FOLDER/jars, by Maven, which proves each jar by its checksum.
#
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: maven-jars.sh FOLDER GROUP:ARTIFACT:VERSION...}
shift
making="$target.making.$$"

mkdir -p "$making/jars"
making=$(cd "$making" && pwd)
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
{
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>cdcsync</groupId><artifactId>jars</artifactId><version>1</version><dependencies>'
    printf '%s\n' "$@" | sed 's#\(.*\):\(.*\):\(.*\)#<dependency><groupId>\1</groupId><artifactId>\2</artifactId><version>\3</version></dependency>#'
    echo '</dependencies></project>'
} >"$making/pom.xml"
(cd "$making" && mvn -q -B -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$making/jars")
rm "$making/pom.xml"
rm -rf "$target"
mv "$making" "$target"
