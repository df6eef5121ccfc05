#!/bin/bash
# run.sh COMMAND...: a command (pytest) inside a node of its own, with the project's images in it; the node is gone afterwards.
#
# KEEP=1 leaves it up, for a closer look: `. tests/cluster/lib.sh; kubectl_ get pods -A`.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/lib.sh"

phase() { # NAME COMMAND...: says what it takes
  local name=$1 begun=$SECONDS; shift
  "$@"
  echo "cluster: $name, $((SECONDS - begun)) s"
}

phase "programs and packages" "$here/install.sh" packages
phase helm "$here/helm.sh"
phase "images built" "$here/images.sh" build
[ -n "${KEEP:-}" ] || trap '"$here/down.sh" --purge' EXIT
phase "node started" "$here/up.sh"
phase "images loaded" "$here/images.sh" load
CDCSYNC_NODE_IMAGES=$("$here/images.sh" key)
export CDCSYNC_NODE_IMAGES CDCSYNC_NODE_STATE=$KUBE_HOME
in_node "$@"
