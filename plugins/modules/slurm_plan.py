#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: judge the Slurm tier's part of the inventory, and work out what Slurm's files say."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_plan
short_description: Judge the Slurm tier's part of the inventory
version_added: 0.1.0
description:
  - Reads the variables of role C(tier_slurm) strictly, compares them with the machines, and refuses what cannot work
    with one line that names the variable, its value and the remedy.
  - Works out node lines, card lines, how the machine is divided among jobs, and by what jobs can be confined.
  - Runs on the controller. Changes nothing.
options:
  settings:
    description: The role's variables, by their names without C(tier_slurm_).
    type: dict
    required: true
  nodes:
    description: What M(slurm_node_facts) said on each machine that runs jobs.
    type: list
    elements: dict
    required: true
  members:
    description: Everybody who has or had an account, as in C(lab_members).
    type: list
    elements: dict
    required: true
  windows:
    description: The table of golden hours, as in C(gpu_windows), or V(usual) for the one that gpulab comes with.
    type: raw
    default: usual
attributes:
  check_mode:
    support: full
    details: A machine that shows no card is a warning, since on a new server nothing can ask for cards yet.
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
- name: Judge the inventory against this machine
  slurm_plan:
    settings:
      cluster: lab
      partitions: [{name: batch, default: true}]
    nodes: ["{{ __node.node }}"]
    members: "{{ lab_members }}"
  register: __plan
"""

RETURN = r"""
plan:
  description: What the role's templates need.
  returned: always
  type: dict
  contains:
    nodes:
      description: Lines C(NodeName=...) of slurm.conf.
      type: list
      elements: str
    gres:
      description: Lines of gres.conf, one for each card or instance.
      type: list
      elements: str
    cards:
      description: Name of a node to the last device file of each of its cards and instances, as Slurm numbers them.
      type: dict
    types:
      description: Types of cards and instances, with how many there are.
      type: dict
    partitions:
      description: The partitions, with all their values.
      type: list
      elements: dict
    weights:
      description: The most that each reason adds to the priority of a job.
      type: dict
    window_starts:
      description: The table of golden hours for job_submit.lua, in minutes of the week.
      type: list
      elements: dict
    calendar:
      description: When windows begin and end, as systemd's timers take it.
      type: list
      elements: str
    short_minutes:
      description: How long a job may be to count as short work.
      type: int
    short_cards:
      description: How many cards a job may have to count as short work.
      type: int
    cpus_per_card:
      description: CPUs that a job gets for each card.
      type: int
    memory_per_card:
      description: RAM that a job gets for each card, MiB.
      type: int
    memory_per_cpu:
      description: RAM that a job without cards gets for each CPU, MiB.
      type: int
    shared_cores:
      description: Whether Slurm is told of more or fewer processors than there are.
      type: bool
    enforced:
      description: Whether jobs are confined to their cards, cores and memory.
      type: bool
    legacy_cgroup:
      description: Whether that is by cgroup v1.
      type: bool
    cgroup_plugin:
      description: V(cgroup/v2), V(cgroup/v1) or V(disabled).
      type: str
    cgroup_mountpoint:
      description: Folder of the v1 controllers; empty otherwise.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services.slurm_plan import judge


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "required": True},
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "members": {"type": "list", "elements": "dict", "required": True},
            "windows": {"type": "raw", "default": "usual"},
        },
        supports_check_mode=True,
    )
    try:
        judged = judge(
            module.params["settings"],
            module.params["nodes"],
            members=module.params["members"],
            windows=module.params["windows"],
            lenient=module.check_mode,
        )
    except GpulabError as error:
        module.fail_json(msg=str(error))
    for warning in judged.warnings:
        module.warn(warning)
    module.exit_json(changed=False, plan=judged.plain)


if __name__ == "__main__":
    main()
