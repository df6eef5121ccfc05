#!/bin/bash
# The project's images, built from its Dockerfile by buildah on a base made by debootstrap, into the cluster's containerd.
#
# A build is skipped where neither the sources nor the Dockerfile changed. `images.sh build` only builds.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"; . ./lib.sh
root=$(cd ../.. && pwd -P)
key=$(cd "$root" && cat Dockerfile docker/* pyproject.toml $(find core operator spark_app -name '*.py' | sort) | sha256sum | cut -c1-16)
buildah images --quiet docker.io/library/debian:bookworm-slim > /dev/null 2>&1 || ./image/base.sh "$CACHE/rootfs" > "$CACHE/base.log" 2>&1
for target in operator spark; do
  archive=$KUBE_IMAGES/$target-$key.tar
  if [ ! -s "$archive" ]; then
    rm -f "$KUBE_IMAGES/$target"-*.tar
    echo "images: building $target"
    nice -n 10 buildah build --quiet --layers --isolation chroot --network host --target "$target" --tag "localhost/cdcsync-$target:$key" "$root" > "$CACHE/$target.log" 2>&1 \
      || { tail -30 "$CACHE/$target.log" >&2; exit 1; }
    buildah push --quiet "localhost/cdcsync-$target:$key" "docker-archive:$archive.new:localhost/cdcsync-$target:$key" > /dev/null
    mv "$archive.new" "$archive"
  fi
  [ "${1:-}" = build ] || ctr_ images ls -q | grep -qx "localhost/cdcsync-$target:$key" || ctr_ images import "$archive" > /dev/null
done
echo "$key"
