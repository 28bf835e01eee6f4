#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: close members' sessions to the cards, or open them again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_guard
short_description: Close members' sessions to the cards of a GPU server
version_added: 0.1.0
description:
  - Login sessions, cron and at jobs and user services of members can no longer open C(/dev/nvidia0) and the like, nor
    the capability nodes of MIG instances. The kernel refuses, with a device filter of systemd (cgroup v2). What is
    started elsewhere with a filter of its own, as leases and Slurm's jobs are, opens what it was given.
  - Root, the members of C(gpu-admins) and the accounts in O(exempt) keep the cards.
  - It keeps one drop-in called C(60-gpulab-guard.conf) for the slices of all users, one for each account that keeps
    the cards and one for each service that starts members' processes, one for C(logind.conf), and one line in the PAM
    files of cron and at. Those that are no longer needed are removed.
  - What runs already follows at once, sessions that are open included. A file that is open stays open; who has one is
    told as a warning.
  - After that it tries the guard out and fails when the kernel does not follow.
options:
  state:
    description: V(absent) removes everything; sessions, those that are open included, can open the cards again.
    type: str
    choices: [absent, present]
    default: present
  devices:
    description:
      - Nodes and device groups that members may open, as in C(DeviceAllow) of systemd.resource-control(5) but without
        access letters. Terminals, C(/dev/null) and the like always are; so are C(/dev/nvidiactl) and
        C(/dev/nvidia-uvm), which open no card by themselves. What leads to a card is refused.
    type: list
    elements: str
    default: [/dev/fuse, /dev/net/tun]
  exempt:
    description: Further accounts whose sessions keep the cards.
    type: list
    elements: str
    default: []
  services:
    description: Further services that start members' processes, such as C(jupyterhub.service).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    details: The guard is not tried out.
  diff_mode:
    support: full
    details: Shows each file.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
notes:
  - The account that Ansible is connected with must be root, an admin or in O(exempt); otherwise nothing is changed and
    the module fails, because the next run could not read the cards.
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Close members' sessions to the cards
  gpu_guard:
    devices: [/dev/fuse, /dev/net/tun, /dev/kvm]

- name: Open them again
  gpu_guard:
    state: absent
"""

RETURN = r"""
files:
  description: The files that changed, or would in check mode, in the order of work.
  returned: always
  type: list
  elements: str
  sample: [/etc/systemd/system/user-0.slice.d/60-gpulab-guard.conf]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services import guard


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["absent", "present"], "default": "present"},
            "devices": {"type": "list", "elements": "str", "default": ["/dev/fuse", "/dev/net/tun"]},
            "exempt": {"type": "list", "elements": "str", "default": []},
            "services": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wish = guard.Wish(*(module.params[name] for name in ("devices", "services", "exempt")))
    try:
        if module.params["state"] == "absent":
            report = guard.remove(guard.Machine(), dry_run=module.check_mode)
        else:
            report = guard.apply(wish, guard.Machine(), dry_run=module.check_mode)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    for line in report.warnings:
        module.warn(line)
    module.exit_json(
        changed=bool(report.files),
        files=[change.path for change in report.files],
        diff=[
            {
                "before_header": change.path,
                "after_header": change.path,
                "before": change.before,
                "after": change.after,
            }
            for change in report.files
        ],
    )


if __name__ == "__main__":
    main()
