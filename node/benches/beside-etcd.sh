#!/usr/bin/env bash
# Measures clawhive beside an etcd of three members on loopback, both in one run.
#
#   node/benches/beside-etcd.sh [arguments of `clawhive bench`; default: writes batched reads submit]
#
# Needs `etcd` on the PATH (Debian: etcd-server). Both stores keep their data on the same disk, with fsync on.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v etcd >/dev/null || { echo "beside-etcd.sh: no etcd on the PATH (Debian: apt-get install etcd-server)" >&2; exit 2; }
cargo build -q --release -p clawhive-node

dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
cluster=m0=http://127.0.0.1:23800,m1=http://127.0.0.1:23801,m2=http://127.0.0.1:23802
for i in 0 1 2; do
  etcd --name "m$i" --data-dir "$dir/m$i" --logger zap --log-level error \
    --listen-client-urls "http://127.0.0.1:2379$i" --advertise-client-urls "http://127.0.0.1:2379$i" \
    --listen-peer-urls "http://127.0.0.1:2380$i" --initial-advertise-peer-urls "http://127.0.0.1:2380$i" \
    --initial-cluster "$cluster" --initial-cluster-state new >"$dir/m$i.log" 2>&1 &
  pids+=($!)
done
sleep 3
[ $# -gt 0 ] || set -- writes batched reads submit
target/release/clawhive bench --nodes 3 --etcd 127.0.0.1:23790,127.0.0.1:23791,127.0.0.1:23792 "$@"
