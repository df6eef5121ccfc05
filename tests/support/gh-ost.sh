#!/bin/sh
# Builds gh-ost from Go modules, for the tests that run it beside a stream (about half a minute of CPU time, once).
#
# A module of our own that requires the pinned version needs no list of versions from the proxy; the checksum database proves
# each module. The program is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: gh-ost.sh PROGRAM}
version=v1.1.8
making="$target.making.$$"

mkdir -p "$making"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
printf 'module cdcsync/tests\n\ngo 1.25\n\nrequire github.com/github/gh-ost %s\n' "$version" >"$making/go.mod"
(cd "$making" && CGO_ENABLED=0 nice go build -mod=mod -trimpath -buildvcs=false -ldflags '-s -w' -o program github.com/github/gh-ost/go/cmd/gh-ost)
mv "$making/program" "$target"
