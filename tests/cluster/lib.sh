# Names and addresses that the scripts of the one-node cluster share. Everything lives in one network namespace and one folder.
CACHE=${CDCSYNC_NODE_CACHE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)/.cache/node}
mkdir -p "$CACHE"; CACHE=$(cd "$CACHE" && pwd -P) # as /proc/mounts shows it
KUBE_HOME=${KUBE_HOME:-$CACHE/state}          # state: pki, etcd, containerd, kubelet, logs
# A minor version such as 1.33, of which node/1.33.mod has the modules; empty: that of node/go.mod.
KUBERNETES=${KUBERNETES:-}
NODE_BIN=${NODE_BIN:-$CACHE/node${KUBERNETES:+-$KUBERNETES}} # the binary that build.sh made
KUBE_IMAGES=${KUBE_IMAGES:-$CACHE/images}     # pause.tar
CONTAINERD=$CACHE/containerd                  # image layers; kept when the state goes
# buildah's layers, too
export CONTAINERS_STORAGE_CONF=$CACHE/buildah/storage.conf
NETNS=${NETNS:-cdcsync-node}
NODE_NAME=${NODE_NAME:-cdcsync-node}
NODE_IP=10.251.0.1                            # address of the empty bridge "node0" in the namespace
POD_CIDR=10.252.0.0/16
POD_GATEWAY=10.252.0.1
SERVICE_CIDR=10.253.0.0/16
API_SERVICE_IP=10.253.0.1
DNS_IP=$NODE_IP
API=https://$NODE_IP:6443
PKI=$KUBE_HOME/pki
RUN=$KUBE_HOME/run                            # pid files, containerd socket
LOG=$KUBE_HOME/log
CRI=$RUN/containerd.sock
PAUSE=localhost/pause:1

# nsenter, not `ip netns exec`: the latter remounts /sys and so hides the
# cgroup controllers from containerd, runc and the kubelet.
in_node() { nsenter --net=/run/netns/"$NETNS" "$@"; }

running() { # NAME: is the process in its pid file alive and still ours?
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 1
  { tr '\0' ' ' < "/proc/$pid/cmdline"; } 2>/dev/null | grep -qF -- "$KUBE_HOME"
}

start() { # NAME COMMAND...: start once, in the namespace, detached
  local name=$1; shift
  running "$name" && return 0
  setsid nsenter --net=/run/netns/"$NETNS" "$@" >> "$LOG/$name.log" 2>&1 < /dev/null &
  echo $! > "$RUN/$name.pid"
}

wait_for() { # SECONDS WHAT COMMAND...
  local left=$1 what=$2; shift 2
  local end=$((SECONDS + left))
  until "$@" > /dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then echo "up: timed out waiting for $what" >&2; return 1; fi
    sleep 0.2
  done
}

storage() { # where buildah keeps its layers
  [ -s "$CONTAINERS_STORAGE_CONF" ] && return
  mkdir -p "$CACHE/buildah"
  printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$CACHE/buildah/layers" "$CACHE/buildah/run" > "$CONTAINERS_STORAGE_CONF"
}

kubectl_() { in_node "$NODE_BIN" kubectl --kubeconfig "$KUBE_HOME/admin.kubeconfig" "$@"; }
ctr_() { ctr --address "$CRI" --namespace k8s.io "$@"; }
