#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the configuration of Slurm's controller, as one safe step."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Prove the controller's configuration, write it, and put it in force
version_added: 0.1.0
description:
  - Compares the files with those in C(/etc/slurm). When something differs, a throw-away controller is started with the
    new ones first, in a network namespace of its own. Only when that comes up are the files written and put in force.
  - Reconfigures where that suffices, restarts where it must, and starts a controller that is down. When that fails, the
    former files and a running controller come back, and the module fails with the reason.
  - Running jobs go on. The exception is a node whose number or type of cards changes, because Slurm kills its jobs.
    Such a node is drained first; when jobs run there, the module names them and changes nothing.
  - The cluster is made known to slurmdbd before the first start.
options:
  files:
    description: Content by name in C(/etc/slurm).
    type: dict
    required: true
  restart:
    description: Names of files whose change needs a restart of the controller rather than a reconfiguration.
    type: list
    elements: str
    default: [slurm.conf, cgroup.conf]
  cluster:
    description: The cluster's name.
    type: str
    default: lab
  user:
    description: Account that slurmctld runs as (SlurmUser).
    type: str
    default: slurm
  drain_seconds:
    description: How long to wait for the jobs of a node whose cards change; V(0) refuses at once.
    type: int
    default: 0
requirements:
  - C(unshare), C(runuser) and C(ip), as every Debian and Ubuntu has them.
attributes:
  check_mode:
    support: full
    details: The new files are proved in check mode too, once slurmctld is installed.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: A run that was killed can be repeated.
  platform:
    support: full
    platforms: linux
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Have the controller run with its configuration
  slurm_config:
    files:
      slurm.conf: "{{ lookup('ansible.builtin.template', 'slurm.conf.j2') }}"
      cgroup.conf: "{{ lookup('ansible.builtin.template', 'cgroup.conf.j2') }}"
"""

RETURN = r"""
files:
  description: Names of the files that differ from before.
  returned: always
  type: list
  elements: str
action:
  description: V(started), V(restarted), V(reconfigured), V(enabled), or empty when nothing was to be done.
  returned: always
  type: str
drained:
  description: Nodes that take no jobs until their slurmd has been started with their new cards.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services.slurm_config import Request, apply
from ansible.module_utils.gpulab.services.slurm_daemons import World


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "dict", "required": True},
            "restart": {"type": "list", "elements": "str", "default": ["slurm.conf", "cgroup.conf"]},
            "cluster": {"type": "str", "default": "lab"},
            "user": {"type": "str", "default": "slurm"},
            "drain_seconds": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    request = Request(
        files={name: str(content).rstrip("\n") + "\n" for name, content in module.params["files"].items()},
        restart=frozenset(module.params["restart"]),
        cluster=module.params["cluster"],
        user=module.params["user"],
        drain_seconds=module.params["drain_seconds"],
    )
    try:
        outcome = apply(request, World(), dry_run=module.check_mode)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    for warning in outcome.warnings:
        module.warn(warning)
    module.exit_json(
        changed=bool(outcome.changed or outcome.action),
        files=outcome.changed,
        action=outcome.action,
        drained=outcome.drained,
        diff=[
            {"before_header": name, "after_header": name, "before": before, "after": after}
            for name, before, after in outcome.differences
        ],
    )


if __name__ == "__main__":
    main()
