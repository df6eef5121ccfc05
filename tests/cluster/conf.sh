#!/bin/bash
# Configuration files of containerd, CNI, kubelet and kube-proxy.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
C=$KUBE_HOME/conf; mkdir -p "$C" "$KUBE_HOME/cni"

cat > "$C/containerd.toml" <<EOF
version = 2
root = "$CONTAINERD"
state = "$RUN/containerd"
[grpc]
  address = "$CRI"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE"
  stream_server_address = "127.0.0.1"
  # Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj, which pause wants at -998.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$KUBE_HOME/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
EOF

cat > "$KUBE_HOME/cni/10-node.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "cdcsync-node", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "$KUBE_HOME/cni-ipam",
            "ranges": [[{"subnet": "$POD_CIDR", "gateway": "$POD_GATEWAY"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF

: > "$C/resolv.conf"
cat > "$C/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$CRI
address: $NODE_IP
port: 10250
healthzBindAddress: 127.0.0.1
tlsCertFile: $PKI/kubelet-server.crt
tlsPrivateKeyFile: $PKI/kubelet-server.key
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [$DNS_IP]
resolvConf: $C/resolv.conf
podLogsDir: $KUBE_HOME/pod-logs
volumePluginDir: $KUBE_HOME/plugins
# A test node must not evict pods because the machine's disk is full.
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
imageMinimumGCAge: 24h
EOF

cat > "$C/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: $NODE_NAME
clientConnection: {kubeconfig: $KUBE_HOME/proxy.kubeconfig}
bindAddress: $NODE_IP
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clusterCIDR: $POD_CIDR
# 0 = leave the kernel's own (global) conntrack limits alone.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
EOF
