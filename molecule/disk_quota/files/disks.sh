#!/bin/sh
# An XFS that is mounted from fstab without quota, an ext4 and a Btrfs, in files; two members.
set -eu
useradd --create-home alice
useradd --create-home bob
mkdir /srv/late /srv/ext4 /srv/btrfs /srv/tmpfs
for kind in xfs ext4 btrfs; do
  truncate --size 400M /root/$kind.img
  mkfs.$kind -q /root/$kind.img
done
echo "/root/xfs.img /srv/late xfs loop 0 0" >>/etc/fstab
mount /srv/late
mount -o loop /root/ext4.img /srv/ext4
mount -o loop /root/btrfs.img /srv/btrfs
mount -t tmpfs tmpfs /srv/tmpfs
