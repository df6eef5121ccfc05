#!/bin/sh
# Builds a program from Go modules, for tests that run it: go-program.sh PROGRAM MODULE VERSION PACKAGE
#
# A module of our own that requires the pinned version needs no list of versions from the proxy; the checksum database proves
# each module. The program is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: go-program.sh PROGRAM MODULE VERSION PACKAGE}
module=$2
version=$3
package=$4
making="$target.making.$$"

if [ -x "$target" ]; then
    exit 0
fi
mkdir -p "$making"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
printf 'module cdcsync/tests\n\ngo 1.25\n\nrequire %s %s\n' "$module" "$version" >"$making/go.mod"
(cd "$making" && CGO_ENABLED=0 nice go build -mod=mod -trimpath -buildvcs=false -ldflags '-s -w' -o program "$module/$package")
mv "$making/program" "$target"
