#!/bin/bash
# run.sh COMMAND...: a command (pytest) inside a node of its own, with the project's images in it; the node is gone afterwards.
#
# KEEP=1 leaves it up, for a closer look: `. tests/cluster/lib.sh; kubectl_ get pods -A`.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
"$here/install.sh" packages
"$here/helm.sh"
"$here/images.sh" build > /dev/null
. "$here/lib.sh"
[ -n "${KEEP:-}" ] || trap '"$here/down.sh" --purge' EXIT
"$here/up.sh"
CDCSYNC_NODE_IMAGES=$("$here/images.sh" | tail -1)
export CDCSYNC_NODE_IMAGES CDCSYNC_NODE_STATE=$KUBE_HOME
in_node "$@"
