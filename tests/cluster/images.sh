#!/bin/bash
# images.sh build|check|sbom FOLDER|archives FOLDER VERSION|load|hand COMMAND|key: the project's images, built from its Dockerfile by buildah on a base made by
# debootstrap, and one of a tenant for the tests; `build` ends with `check`: no setuid or
# setgid programs, and no image larger than docker/budget says; `sbom` leaves a bill of materials of each in FOLDER, `archives` an OCI archive of each and
# their digests as values of the chart, `load` brings them into the running node's containerd, `hand` calls COMMAND
# with an archive of each, `key` says their tag.
#
# ADD_IMAGES=FOLDER names a release of the same version that was made on a machine of the other architecture: an archive is then an index of
# both images, and their bills of materials stand side by side.
#
# buildah and containerd keep their layers in the cache, so a change of the product makes and unpacks its own layer only.
set -euo pipefail
[ -z "${ADD_IMAGES:-}" ] || ADD_IMAGES=$(realpath "$ADD_IMAGES")
cd "$(dirname "$(readlink -f "$0")")"; . ./lib.sh
root=$(cd ../.. && pwd -P)
key=$(cd "$root" && cat .dockerignore Dockerfile docker/* pyproject.toml tests/cluster/image/base.sh tests/cluster/image/tenant.Dockerfile $(find core operator spark_app -name '*.py' | sort) | sha256sum | cut -c1-16)
machine=$(dpkg --print-architecture)

has() { buildah images --quiet "$1" > /dev/null 2>&1; }

build() {
  storage
  base=$(sha256sum < image/base.sh)
  if ! has docker.io/library/debian:bookworm-slim || [ "$(cat "$CACHE/base.key" 2>/dev/null)" != "$base" ]; then
    ./image/base.sh "$CACHE/rootfs" > "$CACHE/base.log" 2>&1
    echo "$base" > "$CACHE/base.key"
  fi
  for target in operator spark; do
    has "localhost/cdcsync-$target:$key" && continue
    buildah build --quiet --layers --isolation chroot --network host --target "$target" --tag "localhost/cdcsync-$target:$key" "$root" > "$CACHE/$target.log" 2>&1 \
      || { tail -30 "$CACHE/$target.log" >&2; exit 1; }
  done
  has "localhost/cdcsync-tenant:$key" || buildah build --quiet --build-arg "OPERATOR=localhost/cdcsync-operator:$key" --file image/tenant.Dockerfile \
    --tag "localhost/cdcsync-tenant:$key" image > "$CACHE/tenant.log" 2>&1 || { tail -30 "$CACHE/tenant.log" >&2; exit 1; }
  check
}

check() {
  storage
  local failed=0
  for target in operator spark; do
    container=$(buildah from --pull-never "localhost/cdcsync-$target:$key")
    judge "$target" "$(buildah mount "$container")" || failed=1
    buildah rm "$container" > /dev/null
  done
  return $failed
}

judge() { # TARGET FOLDER: says what is wrong with the image's files
  local found megabytes budget
  found=$(find "$2" -xdev -perm /6000)
  megabytes=$(du -sxm "$2" | cut -f1)
  budget=$(awk -v target="$1" '$1 == target { print $2 }' "$root/docker/budget")
  [ -z "$found" ] || { echo "image $1: found setuid or setgid files: $(echo $found); needed: none; remedy: chmod ug-s in the Dockerfile" >&2; return 1; }
  [ "$megabytes" -le "$budget" ] || { echo "image $1: found $megabytes MB; needed: at most $budget MB; remedy: leave something out, or raise docker/budget" >&2; return 1; }
  echo "image $1: $megabytes MB of $budget MB, no setuid or setgid files"
}

sbom() { # FOLDER
  storage
  mkdir -p "$@"
  for target in operator spark; do
    container=$(buildah from --pull-never "localhost/cdcsync-$target:$key")
    python3 "$root/tools/sbom.py" "$(buildah mount "$container")" "cdcsync-$target" "$key" > "$1/cdcsync-$target-$machine.cdx.json"
    buildah rm "$container" > /dev/null
    [ -z "${ADD_IMAGES:-}" ] || cp -n "$ADD_IMAGES/cdcsync-$target"-*.cdx.json "$1"
  done
}

archives() { # FOLDER VERSION
  [ -z "${ADD_IMAGES:-}" ] || check_added "$1"
  local values="$1/cdcsync-$2-images.yaml"
  echo "# Values of the chart: the images of this release by digest. Add the repositories that you pushed them to." > "$values"
  for target in operator spark; do
    pack "$1/cdcsync-$target-$2.oci.tar" "$2" "localhost/cdcsync-$target:$key" > "$CACHE/$target.digest"
    echo "$([ $target = operator ] && echo image || echo driverImage): {digest: \"$(cat "$CACHE/$target.digest")\"}" >> "$values"
  done
}

pack() { # FILE TAG IMAGE: makes an archive, of the image of ADD_IMAGES, too; prints its digest
  local index=localhost/cdcsync-index:$$ digest=$1.digest architectures
  storage
  if [ -z "${ADD_IMAGES:-}" ]; then
    buildah push --quiet --digestfile "$digest" "$3" "oci-archive:$1:$2"
  else
    buildah manifest create "$index" "$3" "oci-archive:$ADD_IMAGES/${1##*/}:$2" > /dev/null
    architectures=$(buildah manifest inspect "$index" | grep '"architecture"' | sort -u | wc -l)
    [ "$architectures" != 2 ] || buildah manifest push --quiet --all --digestfile "$digest" "$index" "oci-archive:$1:$2" > /dev/null
    buildah manifest rm "$index" > /dev/null
    [ "$architectures" = 2 ] || { echo "images: found $ADD_IMAGES of this architecture; needed: a release that another one made" >&2; return 1; }
  fi
  cat "$digest"
  rm "$digest"
}

check_added() { # FOLDER: what is added is of the same sources, and as it was made
  (cd "$ADD_IMAGES" && sha256sum --check --quiet --strict SHA256SUMS) && cmp --silent "$1"/*.whl "$ADD_IMAGES"/*.whl \
    || { echo "images: found in $ADD_IMAGES other files than its SHA256SUMS says, or another wheel; needed: a release of the same commit" >&2; return 1; }
}

load() {
  for target in operator spark tenant; do
    image=localhost/cdcsync-$target:$key
    ctr_ images ls -q | grep -qx "$image" && continue
    buildah push --quiet "$image" "docker-archive:/dev/stdout:$image" | ctr_ images import - > /dev/null
  done
  ctr_ images ls -q | grep '^localhost/cdcsync-' | { grep -v ":$key$" || true; } | xargs -r ctr --address "$CRI" --namespace k8s.io images rm > /dev/null
}

hand() { # COMMAND
  storage
  for target in operator spark tenant; do
    archive=$CACHE/cdcsync-$target.tar
    rm -f "$archive"
    buildah push --quiet "localhost/cdcsync-$target:$key" "docker-archive:$archive:localhost/cdcsync-$target:$key"
    $1 "$archive"
    rm -f "$archive"
  done
}

key() { echo "$key"; }

"$@"
