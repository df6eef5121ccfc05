#!/bin/sh
# Builds cosign from Go modules, for the test that signs a release (some minutes of CPU time, once).
#
# A module of our own that requires the pinned version needs no list of versions from the proxy; the checksum database proves
# each module. The program is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: cosign.sh PROGRAM}
version=v2.6.5
making="$target.making.$$"

[ -x "$target" ] && exit 0
mkdir -p "$making"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
printf 'module cdcsync/tests\n\ngo 1.25\n\nrequire github.com/sigstore/cosign/v2 %s\n' "$version" >"$making/go.mod"
(cd "$making" && CGO_ENABLED=0 nice go build -mod=mod -trimpath -buildvcs=false -ldflags '-s -w' -o program github.com/sigstore/cosign/v2/cmd/cosign)
mv "$making/program" "$target"
