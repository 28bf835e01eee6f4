# Shared by the scripts beside it; source it. Sets: top, PATH with the project's tools, the containers' configuration.
# shellcheck shell=bash
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH="$top/.venv/bin:$PATH"
export CONTAINERS_CONF="$top/molecule/images/containers.conf"
export ANSIBLE_CONFIG="$top/ansible.cfg"
export PYTHONUTF8=1
# Ansible refuses to start without a UTF-8 locale; C.UTF-8 is always there.
case "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" in *[Uu][Tt][Ff]-8 | *[Uu][Tt][Ff]8) ;; *) export LC_ALL=C.UTF-8 ;; esac

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() {
  printf '%s\n' "$*" >&2
  exit 1
}
