#!/bin/bash
# images.sh build|load: the project's images, built from its Dockerfile by buildah on a base made by debootstrap; prints their tag.
# `load` brings them into the running node's containerd.
#
# Layers are kept in the cache by buildah, by an OCI layout and by containerd, so a change of the product moves its own layer only.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"; . ./lib.sh
root=$(cd ../.. && pwd -P)
layout=$CACHE/oci
key=$(cd "$root" && cat .dockerignore Dockerfile docker/* pyproject.toml $(find core operator spark_app -name '*.py' | sort) | sha256sum | cut -c1-16)

build() {
  storage
  [ "$(cat "$layout/key" 2>/dev/null)" = "$key" ] && return
  buildah images --quiet docker.io/library/debian:bookworm-slim > /dev/null 2>&1 || ./image/base.sh "$CACHE/rootfs" > "$CACHE/base.log" 2>&1
  mkdir -p "$layout"
  rm -f "$layout/index.json" "$layout/key"
  for target in operator spark; do
    image=localhost/cdcsync-$target:$key
    buildah build --quiet --layers --isolation chroot --network host --target "$target" --tag "$image" "$root" > "$CACHE/$target.log" 2>&1 \
      || { tail -30 "$CACHE/$target.log" >&2; exit 1; }
    buildah push --quiet --disable-compression "$image" "oci:$layout:$image" > /dev/null
  done
  echo "$key" > "$layout/key"
}

load() {
  ctr_ images ls -q | grep -qx "localhost/cdcsync-spark:$key" && return
  (cd "$layout" && find . -type f ! -name key -printf '%P\n' | grep -vFf <(ctr_ content ls -q | sed 's/^sha256:/blobs\/sha256\//') | tar -cf - -T -) \
    | ctr_ images import - > /dev/null
  ctr_ images ls -q | grep '^localhost/cdcsync-' | { grep -v ":$key$" || true; } | xargs -r ctr --address "$CRI" --namespace k8s.io images rm > /dev/null
}

"$1"
echo "$key"
