#!/bin/sh
# A neighbour on the line lab0: 10.9.0.2, and 10.9.1.2 as storage that is exempt. It answers iperf3 and logs in by ssh.
set -eu
ip netns list | grep -q '^outside' || ip netns add outside
ip link show lab0 >/dev/null 2>&1 || ip link add lab0 type veth peer name lab1 netns outside
for end in 1 2; do
  at="" device=lab0
  [ $end = 1 ] || { at="-n outside" device=lab1; }
  # shellcheck disable=SC2086 # two words or none
  for net in 0 1; do ip $at address replace "10.9.$net.$end/24" dev $device; done
  # shellcheck disable=SC2086
  ip $at link set $device up
done
ip -n outside link set lo up
for port in 5201 5202 5203 5204; do
  ip netns exec outside iperf3 --server --daemon --port $port
done
