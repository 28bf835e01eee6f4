#!/bin/sh
# An archive on this machine, with what a security update would bring: newer versions of nvidia-smi, of a kernel and of
# an ordinary package. The latter two are empty packages, of which version 1 is installed first.
set -eu
work=$(mktemp -d)
mkdir -p /srv/newer
cd "$work"
apt-get download --quiet nvidia-smi
dpkg-deb --raw-extract nvidia-smi_*.deb nvidia-smi
sed -i -e 's/^Version: .*/Version: 999.1-1/' -e '/^Depends:/d' nvidia-smi/DEBIAN/control
dpkg-deb --build nvidia-smi /srv/newer >/dev/null
for name in linux-image-amd64 ordinary; do
  for version in 1 2; do
    mkdir -p "$name-$version/DEBIAN"
    printf '%s\n' "Package: $name" "Version: $version" "Architecture: all" \
      "Maintainer: Alice <alice@example.org>" "Description: empty" >"$name-$version/DEBIAN/control"
    dpkg-deb --build "$name-$version" . >/dev/null
  done
  dpkg --install "${name}_1_all.deb" >/dev/null
  mv "${name}_2_all.deb" /srv/newer
done
cd /srv/newer
dpkg-scanpackages . >Packages 2>/dev/null
. /etc/os-release
printf '%s\n' "Origin: Debian" "Label: Debian-Security" "Suite: stable-security" \
  "Codename: $VERSION_CODENAME-security" "SHA256:" \
  " $(sha256sum Packages | cut -d' ' -f1) $(stat --format=%s Packages) Packages" >Release
echo "deb [trusted=yes] file:/srv/newer ./" >/etc/apt/sources.list.d/newer.list
apt-get update --quiet --quiet
rm -rf "$work"
