#!/bin/sh
# Disks as servers have them. /home is part of the root file system, an ext4 without the feature `quota`.
set -eu
disk=/dev/disk/by-id/virtio-spare
mkfs.xfs -q -L data ${disk}1                    # mounted with quota from the start
mkfs.ext4 -q -L fast -O quota,project ${disk}2  # counts, and enforces nothing
mkfs.xfs -q -L late ${disk}3                    # mounted without quota
cat >>/etc/fstab <<TEXT
LABEL=data /data xfs defaults,uquota,pquota 0 0
LABEL=fast /srv/fast ext4 defaults 0 2
LABEL=late /srv/late xfs defaults,nofail 0 0
TEXT
mkdir /data /srv/fast /srv/late
systemctl daemon-reload
mount -a
mkdir -m 1777 /data/vision /srv/fast/vision
echo notes >/data/vision/notes
for folder in /data /srv/fast /srv/late; do
  chmod 1777 $folder
done
