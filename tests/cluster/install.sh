#!/bin/bash
# What the one-node cluster needs, once: the node binary; with `images` also what builds images, with `packages` all of Debian's packages
# and the pause image. A machine that works for a cluster elsewhere is spared the packages that run one.
#
# The binary is unpacked where a ready one that fits the sources lies beside the project, else built (5 to 14 minutes). The API
# server alone (the tests of the CRD) needs nothing but the binary.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"; . ./lib.sh
mkdir -p "$CACHE" "$KUBE_IMAGES"
ready=${CDCSYNC_NODE_READY:-../../../shared/cluster}
modules=${KUBERNETES:-go}

build() { # OUT. Before Kubernetes 1.34 the kubelet's command takes no context.
  local folder
  folder=$(mktemp -d)
  cp node/*.go node/build.sh "$folder"
  for kind in mod sum; do cp "node/$modules.$kind" "$folder/go.$kind"; done
  case $KUBERNETES in 1.3[0-3]) sed -i '/^\t"context"$/d; s/NewKubeletCommand(context.Background())/NewKubeletCommand()/' "$folder/main.go" ;; esac
  nice "$folder/build.sh" "$1"
  rm -r "$folder"
}

[ -f "node/$modules.mod" ] || { echo "install: found KUBERNETES=$KUBERNETES; needed: one of $(cd node; ls 1.*.mod | sed 's/.mod//' | xargs), or none" >&2; exit 2; }
key=$(cat node/"$modules".mod node/"$modules".sum node/*.go node/build.sh | sha256sum | cut -c1-16)
if [ "$(cat "$NODE_BIN.key" 2>/dev/null)" != "$key" ]; then
  if [ "$(cat "$ready/node.key" 2>/dev/null)" = "$key" ]; then
    python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer, 2**20)' "$ready"/node-*.xz > "$NODE_BIN.new"
  else
    echo "install: building the node binary from Go modules (5 to 14 minutes, once)"
    build "$NODE_BIN.new"
  fi
  chmod +x "$NODE_BIN.new"; mv "$NODE_BIN.new" "$NODE_BIN"; echo "$key" > "$NODE_BIN.key"
fi
install() { # PACKAGE...
  local missing
  missing=$(for p in "$@"; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok' || echo "$p"; done)
  [ -z "$missing" ] || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends $missing > /dev/null; }
}

case ${1:-} in
images) install buildah debootstrap ;;
packages)
  install buildah debootstrap skopeo containerd runc containernetworking-plugins iptables nftables iproute2 conntrack socat openssl gcc libc6-dev
  [ -s "$KUBE_IMAGES/pause.tar" ] || ./image/pause.sh "$KUBE_IMAGES/pause.tar" ;;
esac
