"""Names of accounts and groups that are not for people: Debian's and Ubuntu's own, and those of common services.

A member of such a name would share the account, or the group, of a piece of software. The list is for a clear refusal
before anything is read from the server; an account that is there with a uid below 1000 is refused in any case.
"""

from __future__ import annotations

from ..names import ADMINS_GROUP, MEMBERS_GROUP

# base-passwd's passwd.master and group.master (Debian 13), without the names that no member could have.
_BASE = """
root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody nogroup
adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev staff
users
"""

# Accounts and groups that packages of a GPU server make, and names that people take for the administrator.
_SERVICES = """
admin administrator toor wheel lpadmin netdev render input kvm sgx crontab ssh sshd sudoers ssl-cert scanner
messagebus dbus polkitd systemd-network systemd-resolve systemd-timesync systemd-journal systemd-coredump systemd-oom
systemd-bus-proxy uuidd tss tcpdump landscape pollinate fwupd-refresh avahi rtkit colord pulse geoclue saned usbmux
ntp chrony openntpd syslog rsyslog postfix postdrop exim dma mailnull smmsp dovecot opendkim
docker podman lxd lxc libvirt libvirt-qemu containers munge slurm mysql mariadb postgres redis memcache mongodb
nvidia-persistenced dcgm ollama prometheus grafana node-exporter nginx apache ftp git gitlab-runner jenkins rpc statd
ceph gluster nfs sssd ldap openldap bind named dnsmasq unbound tomcat elasticsearch zabbix nagios telegraf influxdb
ansible gpulab
"""

RESERVED_NAMES = frozenset([*_BASE.split(), *_SERVICES.split(), ADMINS_GROUP, MEMBERS_GROUP])
"""Names that neither a member nor a group of members may have."""
