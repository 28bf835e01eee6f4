#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: what a machine offers to Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_facts
short_description: What a machine offers to Slurm
version_added: 0.1.0
description:
  - Looks at processors, memory, NVIDIA cards with their MIG instances and device numbers, and at what the kernel can
    enforce. M(slurm_plan) makes Slurm's configuration from it.
  - Works before Slurm is installed. A machine without card or driver is no failure; RV(node.reason) says why.
requirements:
  - The Python package C(nvidia-ml-py). Where the host's own Python lacks it, the module goes on under
    C(/opt/gpulab/current/bin/python), which role C(runtime) installs.
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
    details: It changes nothing.
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
- name: Look at what this machine offers
  slurm_node_facts:
  register: __node
"""

RETURN = r"""
node:
  description: The machine.
  returned: always
  type: dict
  contains:
    name:
      description: Host name without domain, as Slurm's NodeName must be.
      type: str
    address:
      description: Address from which it reaches other machines.
      type: str
    cpus:
      description: Logical CPUs on line.
      type: int
    sockets:
      description: Physical processors.
      type: int
    cores:
      description: Physical cores of all processors.
      type: int
    memory:
      description: RAM in MiB.
      type: int
    cards:
      description: The cards, with those keys of M(nvml_facts) that Slurm needs.
      type: list
      elements: dict
    reason:
      description: Why there is no card; empty when there are cards.
      type: str
    capabilities:
      description: Minor numbers of the capability files of MIG instances, by name.
      type: dict
    cgroup_plugin:
      description: V(cgroup/v2) or V(cgroup/v1), by which jobs can be confined here, or V(disabled).
      type: str
    cgroup_mountpoint:
      description: Folder of the v1 controllers; empty otherwise.
      type: str
    cgroup_reason:
      description: Why jobs cannot be confined; empty when they can.
      type: str
"""

import importlib.util

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, probe_interpreters_for_module, respawn_module
from ansible.module_utils.gpulab.services.slurm_plan import node_facts

PACKAGE_PYTHON = "/opt/gpulab/current/bin/python"
BINDING = "pynvml"


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    if importlib.util.find_spec(BINDING) is None and not has_respawned():
        interpreter = probe_interpreters_for_module([PACKAGE_PYTHON], BINDING)
        if interpreter:
            respawn_module(interpreter)
    try:
        node = node_facts()
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, node=node)


if __name__ == "__main__":
    main()
