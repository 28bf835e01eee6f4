#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the accounts of a lab's members, all of them in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_members
short_description: Keep the accounts of a lab's members as one list says
version_added: 0.1.0
description:
  - Makes accounts, groups, ssh keys and mail aliases agree with a list of members. Reads the account files once,
    however long the list is, and touches only what differs.
  - The whole list is checked before anything changes. One line says which member, key and value cannot be used, and
    what to write instead.
  - A member with O(members[].state=absent) leaves. The account is closed (expired, locked, no shell), managed keys and
    group memberships go, crontab, at jobs and lingering are removed, processes and bookings end, and the home moves to
    C(.gpulab-archive) beside it, where only root can enter. With O(members[].state=present) again, all that comes back
    under the same uid.
  - Accounts in the list that exist already are adopted with their uid, home, shell and password. The system's accounts
    (uid below 1000, or 60000 and above) are refused.
  - Accounts that are not in the list are never touched. A managed one that vanished from the list is reported.
  - New accounts have no password. Members log in with ssh keys, which lie in C(/etc/ssh/authorized_keys.d), not in
    their homes; role C(members) has sshd read them there.
  - Which accounts are managed is recorded in C(/var/lib/gpulab/members/registry.json), as is what happened to them.
options:
  members:
    description: Everybody who has or had an account. Members who left stay in it.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Account name. A lower-case letter, then lower-case letters, digits, C(-) and C(_); at most 32.
        type: str
        required: true
      uid:
        description: Account number, 1000 to 59999. The next free one when it is not given; it never changes later.
        type: int
      full_name:
        description: The person's name.
        type: str
      mail:
        description: The person's mail address, used with O(mail_forward).
        type: str
      ssh_keys:
        description: Lines of C(.pub) files. Ed25519, ECDSA, security keys, and RSA of at least 2048 bits.
        type: list
        elements: str
      groups:
        description:
          - Further groups, made when they are not there. Groups of the system are refused.
          - A group that is taken out of this list is left. Groups that somebody gave by hand stay.
        type: list
        elements: str
      admin:
        description: Whether the member may become root (group C(gpu-admins)).
        type: bool
        default: false
      shell:
        description: Login shell, which must be installed.
        type: str
      gpu:
        description: The member's MIG instance, see module C(mig_layout). Nothing is done about it here.
        type: str
      state:
        description: Whether the member is here or has left.
        type: str
        choices: [present, absent]
        default: present
  lab_admin:
    description: Account name of the person in charge, a present member with O(members[].admin=true). Gets root's mail.
    type: str
    required: true
  home_root:
    description: Folder for the homes of new accounts.
    type: path
    default: /home
  home_mode:
    description: Permission bits of the home of a new account, octal. The owner may change them later.
    type: str
    default: "0750"
  default_shell:
    description: Login shell of new accounts.
    type: path
    default: /bin/bash
  mail_forward:
    description: Whether members' mail goes to O(members[].mail) rather than to their mailboxes on the server.
    type: bool
    default: false
  aliases_file:
    description: The mail alias file. Only the block between gpulab's own markers is written.
    type: path
    default: /etc/aliases
  allow_own_keys:
    description:
      - Whether sshd also reads keys in members' own C(~/.ssh). This module does not set that, role C(members) does.
      - When it does not, the person in charge must have a key in the list.
    type: bool
    default: true
  extra_key_files:
    description:
      - Further key files that role C(members) has sshd read for members.
      - A setting of sshd's that reads keys from elsewhere is refused, because members would lose those keys.
    type: list
    elements: str
    default: []
  grace:
    description: Seconds that the processes of a member who leaves get between TERM and KILL.
    type: int
    default: 30
requirements:
  - The account tools of Debian or Ubuntu, packages C(passwd) and C(login).
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows each changed account before and after; keys as fingerprints.
  idempotent:
    support: full
    details: A run that was killed can be repeated, and ends where an unbroken one does.
  platform:
    support: full
    platforms: linux
notes:
  - When something fails for one member the others are done all the same, and the module fails at the end.
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Keep the accounts as the inventory lists them
  lab_members:
    members:
      - name: alice
        full_name: Alice
        mail: alice@example.org
        admin: true
        ssh_keys: ["{{ lookup('ansible.builtin.file', 'keys/alice.pub') }}"]
      - name: bob
        groups: [vision]
      - name: carol
        state: absent
    lab_admin: alice
"""

RETURN = r"""
members:
  description: What was done to whom, or would be in check mode; only accounts that something was done to.
  returned: always
  type: dict
  sample: {"bob": ["created", "create account, uid 1002", "join group gpu-members", "make home /home/bob"]}
lab:
  description: What was done that belongs to nobody in particular.
  returned: always
  type: list
  elements: str
  sample: ["create group gpu-members", "write mail aliases"]
errors:
  description: What failed, one line each. The next run tries it again.
  returned: always
  type: list
  elements: str
  sample: ["bob: create account, uid 1002: useradd ended with 1: cannot lock /etc/passwd; try again later."]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.adapters.homes import Homes
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.rules.accounts import home_mode
from ansible.module_utils.gpulab.rules.members import parse_members
from ansible.module_utils.gpulab.services.members import Request, World, reconcile


def request(params: dict) -> Request:
    chosen = {name: value for name, value in params.items() if name not in {"members", "home_mode", "extra_key_files"}}
    return Request(members=parse_members(params["members"]), extra_key_files=tuple(params["extra_key_files"]), **chosen)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "members": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "uid": {"type": "int"},
                    "full_name": {"type": "str"},
                    "mail": {"type": "str"},
                    "ssh_keys": {"type": "list", "elements": "str", "no_log": False},
                    "groups": {"type": "list", "elements": "str"},
                    "admin": {"type": "bool", "default": False},
                    "shell": {"type": "str"},
                    "gpu": {"type": "str"},
                    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
                },
            },
            "lab_admin": {"type": "str", "required": True},
            "home_root": {"type": "path", "default": "/home"},
            "home_mode": {"type": "str", "default": "0750"},
            "default_shell": {"type": "path", "default": "/bin/bash"},
            "mail_forward": {"type": "bool", "default": False},
            "aliases_file": {"type": "path", "default": "/etc/aliases"},
            "allow_own_keys": {"type": "bool", "default": True},
            "extra_key_files": {"type": "list", "elements": "str", "default": []},
            "grace": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    try:
        world = World(homes=Homes(root=Path("/"), mode=home_mode(module.params["home_mode"])))
        outcome = reconcile(request(module.params), world, dry_run=module.check_mode)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    for warning in outcome.warnings:
        module.warn(warning)
    result = {
        "changed": outcome.changed,
        "members": {name: actions for name, actions in outcome.actions.items() if name},
        "lab": outcome.actions.get("", []),
        "errors": outcome.errors,
        "diff": [
            {"before_header": what, "after_header": what, "before": before, "after": after}
            for what, before, after in outcome.differences
        ],
    }
    if outcome.errors:
        module.fail_json(msg="; ".join(outcome.errors[:3]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
