#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the disk limits of all members and shared folders, on all file systems, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_quota
short_description: Limit disk space and files of members and shared folders
version_added: 0.1.0
description:
  - Makes the quota of the kernel agree with a list of folders, on ext4 and XFS. Reads what every member may have once,
    and writes only what differs, also where somebody changed it by hand.
  - Everything is checked before anything changes. One line says which entry cannot be had and what to do instead, for
    instance on NFS, ZFS or Btrfs, which limit space in ways of their own.
  - Whether limits are enforced is asked of the kernel, not of mount options, which say so also when they are not.
  - On ext4 limits begin at once, on a file system in use. With its feature C(quota) enforcement is switched on,
    without it the kernel keeps journaled quota files (C(aquota.user)).
  - XFS must be mounted with C(uquota) from the start. When it is not, the option is added to fstab, and a warning says
    that a remount or a reboot is needed. Neither is done by this module.
  - What was given is recorded in C(/var/lib/gpulab/quota). With empty lists all that is taken back.
options:
  folders:
    description:
      - What each member may store on the file system of a folder.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The folder.
        type: str
        required: true
      soft:
        description: Size that may be exceeded for the grace time, such as V(200G). 0 is no limit.
        type: str
      hard:
        description: Size at which writing fails, such as V(220G). 0 is no limit.
        type: str
      files_soft:
        description: Number of files and folders that may be exceeded for the grace time. 0 is no limit.
        type: int
      files_hard:
        description: Number of files and folders at which making another one fails. 0 is no limit.
        type: int
      grace:
        description: How long soft limits may be exceeded, such as V(12h) or V(7d). C(7d) when it is not given.
        type: str
  overrides:
    description: Members with limits of their own. What is not given is as for everybody.
    type: list
    elements: dict
    default: []
    suboptions:
      member:
        description: One of O(members).
        type: str
        required: true
      path:
        description: One of O(folders[].path).
        type: str
        required: true
      soft:
        description: As O(folders[].soft).
        type: str
      hard:
        description: As O(folders[].hard).
        type: str
      files_soft:
        description: As O(folders[].files_soft).
        type: int
      files_hard:
        description: As O(folders[].files_hard).
        type: int
  projects:
    description:
      - Shared folders with a limit of their own, whoever's files they hold (project quota).
      - Useful for keeping count, and no wall. Whoever owns a file can take it out of the project.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The folder.
        type: str
        required: true
      soft:
        description: As O(folders[].soft).
        type: str
      hard:
        description: As O(folders[].hard).
        type: str
      files_soft:
        description: As O(folders[].files_soft).
        type: int
      files_hard:
        description: As O(folders[].files_hard).
        type: int
  members:
    description: Accounts that get limits. One that has no account yet is left out.
    type: list
    elements: str
    default: []
requirements:
  - Linux 5.14 or newer.
  - The package C(quota), for ext4 without its feature of that name.
attributes:
  check_mode:
    support: full
    details: Where counting has to begin first, the limits of single members are not foreseen, only their number.
  diff_mode:
    support: full
    details: Shows the limits that change, a line for each member.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Limit what everybody may store, and let alice have more
  disk_quota:
    folders:
      - {path: /home, soft: 200G, hard: 220G, files_hard: 2000000}
      - {path: /data, soft: 1T, hard: 1100G, grace: 14d}
    overrides:
      - {member: alice, path: /home, soft: 500G, hard: 550G}
    projects:
      - {path: /data/projects/vision, hard: 2T}
    members: [alice, bob, carol]

- name: Take all limits back
  disk_quota:
"""

RETURN = r"""
file_systems:
  description: Those that limits are kept on, or were taken back from.
  returned: always
  type: list
  elements: dict
  contains:
    title:
      description: Mount point, type and device.
      type: str
      returned: always
    point:
      description: Mount point.
      type: str
      returned: always
    enforced:
      description: Whether the kernel refuses what is over the limits.
      type: bool
      returned: always
    steps:
      description: What was done beside setting limits, or would be.
      type: list
      elements: str
      returned: always
    waiting:
      description: What an admin has to do before limits can begin; empty when nothing.
      type: str
      returned: always
    before:
      description: Limits that change, as they were.
      type: list
      elements: str
      returned: always
    after:
      description: Limits that change, as they are, or would be.
      type: list
      elements: str
      returned: always
    over:
      description: Who has more than a new hard limit already.
      type: list
      elements: str
      returned: always
    changed:
      description: Whether something differs from before, or would.
      type: bool
      returned: always
recorded:
  description: Whether C(/etc/gpulab/quota.json) changed, or would.
  returned: always
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.rules.quota import parse_policy
from ansible.module_utils.gpulab.services import quota
from ansible.module_utils.gpulab.services.quota_report import to_dict
from ansible.module_utils.gpulab.services.quota_world import World


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "folders": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "str", "required": True},
                    "soft": {"type": "str"},
                    "hard": {"type": "str"},
                    "files_soft": {"type": "int"},
                    "files_hard": {"type": "int"},
                    "grace": {"type": "str"},
                },
            },
            "overrides": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "member": {"type": "str", "required": True},
                    "path": {"type": "str", "required": True},
                    "soft": {"type": "str"},
                    "hard": {"type": "str"},
                    "files_soft": {"type": "int"},
                    "files_hard": {"type": "int"},
                },
            },
            "projects": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "str", "required": True},
                    "soft": {"type": "str"},
                    "hard": {"type": "str"},
                    "files_soft": {"type": "int"},
                    "files_hard": {"type": "int"},
                },
            },
            "members": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    members = module.params["members"]
    try:
        policy = parse_policy(module.params, members)
        outcome = quota.reconcile(policy, members, World(), dry_run=module.check_mode)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    for line in outcome.warnings:
        module.warn(line)
    diff = [
        {
            "before_header": each.title,
            "after_header": each.title,
            "before": "".join(f"{line}\n" for line in each.before),
            "after": "".join(f"{line}\n" for line in (*each.steps, *each.after)),
        }
        for each in outcome.file_systems
        if each.changed
    ]
    module.exit_json(**to_dict(outcome), diff=diff)


if __name__ == "__main__":
    main()
