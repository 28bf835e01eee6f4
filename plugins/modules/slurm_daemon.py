#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: one of Slurm's daemons, running with its files as they are, and proved alive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_daemon
short_description: Have one of Slurm's daemons run with its files as they are
version_added: 0.1.0
description:
  - Starts the daemon when it is down and restarts it when a file that it reads only at its start changed, also when the
    run that wrote the file was killed before the restart. Otherwise it is left alone.
  - After a start it is asked what its users will ask it, and the module fails, with the end of its journal, unless it
    answers. A credential for munge, a ping for MariaDB, a listening slurmdbd, a registered and complete node
    for slurmd.
  - A node takes new jobs or not, as O(drain) says. One that somebody drained by hand stays so.
  - slurmctld is the business of M(slurm_config).
options:
  name:
    description: The daemon.
    type: str
    choices: [munge, mariadb, slurmdbd, slurmd]
    required: true
  files:
    description: Paths of what it reads only at its start.
    type: list
    elements: str
    default: []
  rewritten:
    description: Whether one of them was written just now.
    type: bool
    default: false
  drain:
    description: For slurmd, why its node takes no new jobs. Running ones go on. Empty when it takes them.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: There is nothing to compare.
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
- name: Have slurmdbd running with its configuration
  slurm_daemon:
    name: slurmdbd
    files: [/etc/slurm/slurmdbd.conf]
"""

RETURN = r"""
action:
  description: V(started), V(restarted), V(enabled), V(drained), V(resumed), or empty when nothing was to be done.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services.slurm_daemons import World, keep


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "choices": ["munge", "mariadb", "slurmdbd", "slurmd"], "required": True},
            "files": {"type": "list", "elements": "str", "default": []},
            "rewritten": {"type": "bool", "default": False},
            "drain": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        action = keep(
            module.params["name"],
            module.params["files"],
            World(),
            rewritten=module.params["rewritten"],
            drain=module.params["drain"],
            dry_run=module.check_mode,
        )
    except GpulabError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(action), action=action)


if __name__ == "__main__":
    main()
