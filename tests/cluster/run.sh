#!/bin/bash
# run.sh COMMAND...: a command (pytest) with a cluster that has the project's images.
#
# The cluster is a node of its own, which is gone afterwards; KEEP=1 leaves it up, to be examined: `. tests/cluster/lib.sh; kubectl_ get
# pods -A`. Or it is one that is given:
#   KUBECONFIG    one file; its user must be an admin
#   IMAGE_LOADER  a command that brings the image of an archive (docker's, its last argument) to all nodes, such as `minikube image load`
#   TEST_ADDRESS  this machine's, as pods reach it; by default the one from which it reaches the API server
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/lib.sh"

phase() { # NAME COMMAND...: says what it takes
  local name=$1 begun=$SECONDS; shift
  "$@"
  echo "cluster: $name, $((SECONDS - begun)) s"
}

on_our_node() {
  [ -z "${KUBECONFIG:-}" ] || echo "cluster: KUBECONFIG is left alone without IMAGE_LOADER; the tests have a node of their own"
  phase "programs and packages" "$here/install.sh" packages
  phase helm "$here/helm.sh"
  phase "images built" "$here/images.sh" build
  [ -n "${KEEP:-}" ] || trap '"$here/down.sh" --purge' EXIT
  phase "node started" "$here/up.sh"
  phase "images loaded" "$here/images.sh" load
  export CDCSYNC_TEST_KUBECONFIG=$KUBE_HOME/admin.kubeconfig CDCSYNC_TEST_ADDRESS=$NODE_IP CDCSYNC_NODE_STATE=$KUBE_HOME
  in_node "$@"
}

on_given_cluster() {
  [ -f "${KUBECONFIG:-}" ] || { echo "cluster: found KUBECONFIG='${KUBECONFIG:-}' beside IMAGE_LOADER; needed: the name of one file" >&2; exit 2; }
  phase "programs and packages" "$here/install.sh" images
  phase helm "$here/helm.sh"
  CDCSYNC_TEST_ADDRESS=${TEST_ADDRESS:-$("$here/../../.venv/bin/python" "$here/address.py" "$KUBECONFIG")}
  export CDCSYNC_TEST_KUBECONFIG=$KUBECONFIG CDCSYNC_TEST_ADDRESS
  phase "images built" "$here/images.sh" build
  phase "images loaded" "$here/images.sh" hand "$IMAGE_LOADER"
  "$@"
}

CDCSYNC_TEST_IMAGES=$("$here/images.sh" key)
export CDCSYNC_TEST_IMAGES
if [ -n "${IMAGE_LOADER:-}" ]; then on_given_cluster "$@"; else on_our_node "$@"; fi
