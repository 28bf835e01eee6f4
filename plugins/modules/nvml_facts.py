#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the NVIDIA cards of a host, as NVML sees them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvml_facts
short_description: Facts about the NVIDIA cards of a host
version_added: 0.1.0
description:
  - Asks NVML, the library under C(nvidia-smi), for the cards, their memory, NVLinks, MIG mode and instances, and for
    the processes on them.
  - A host without card or driver is no failure. Then RV(cards) is empty and RV(reason) says why and what to do.
  - A card that the driver cannot reach any more stays in the list under its index, with RV(cards[].lost) set.
  - What one card does not say is V(null), never 0 or an empty list, and RV(cards[].reason) says why. So a card whose
    processes are unknown is not taken for a free one.
  - Everything is also set as the fact RV(ansible_facts.gpulab_nvml) for later tasks and templates.
requirements:
  - The Python package C(nvidia-ml-py), version 12.535.108 or newer. Where the host's own Python lacks it, the module
    goes on under C(/opt/gpulab/current/bin/python), which role C(runtime) installs. Without either, RV(reason) says so.
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
    details: It changes nothing.
  idempotent:
    support: full
  facts:
    support: full
  platform:
    support: full
    platforms: linux
notes:
  - It works for ordinary users. Only an administrator sees the account names of others where C(/proc) is mounted with
    C(hidepid).
  - Memory is in bytes. What the driver reserves for itself does not count as used, except with drivers before R510.
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
  - action_common_attributes.facts
"""

EXAMPLES = r"""
- name: Look at the cards
  nvml_facts:
  register: __nvml

- name: Say who is on which card
  ansible.builtin.debug:
    msg: "card {{ item.0.index }}: {{ item.1.user }} runs {{ item.1.command }} (pid {{ item.1.pid }})"
  loop: "{{ __nvml.cards | rejectattr('processes', 'none') | subelements('processes') }}"

- name: Stop unless every card can be read
  ansible.builtin.assert:
    that: __nvml.cards | length > 0 and __nvml.cards | rejectattr('lost') | length == __nvml.cards | length
    fail_msg: "{{ __nvml.reason or __nvml.cards | selectattr('lost') | map(attribute='reason') | join('; ') }}"

- name: Count the cards in a template, in any later task
  ansible.builtin.debug:
    msg: "{{ ansible_facts.gpulab_nvml.cards | length }} cards, driver {{ ansible_facts.gpulab_nvml.driver_version }}"
"""

RETURN = r"""
cards:
  description: The cards in order of NVML index, which is the number C(nvidia-smi) shows.
  returned: always
  type: list
  elements: dict
  sample:
    - index: 0
      uuid: GPU-5f0a9c1e-7d7f-4b0e-9b1c-0c3a7f3d2a10
      name: NVIDIA A100-SXM4-80GB
      minor: 0
      bus_id: "00000000:07:00.0"
      memory_total: 85899345920
      memory_used: 21474836480
      memory_free: 63795363840
      utilization: 87
      nvlinks:
        - link: 0
          active: true
          remote_bus_id: "00000000:0F:00.0"
      mig_capable: true
      mig_enabled: false
      mig_pending: false
      mig_devices: []
      processes:
        - pid: 4711
          start_ticks: 918273
          uid: 2001
          user: alice
          command: python
          memory: 21474836480
          kind: C
          gpu_instance: null
          compute_instance: null
      lost: false
      reason: ""
  contains:
    index:
      description: NVML index; not always the N of C(/dev/nvidiaN).
      type: int
      returned: always
    uuid:
      description: Unique name of the card; empty when it cannot be read.
      type: str
      returned: always
    name:
      description: Model; empty when it cannot be read.
      type: str
      returned: always
    minor:
      description: N of C(/dev/nvidiaN); V(null) when unknown.
      type: int
      returned: always
    bus_id:
      description: PCI address; empty when unknown.
      type: str
      returned: always
    memory_total:
      description: Memory of the card in bytes; V(null) when unknown.
      type: int
      returned: always
    memory_used:
      description: Memory in use, in bytes; V(null) when unknown.
      type: int
      returned: always
    memory_free:
      description: Memory that programs can still get, in bytes; V(null) when unknown.
      type: int
      returned: always
    utilization:
      description:
        - Percent of the last sample period in which a kernel ran; V(null) when unknown. While MIG is on it always is.
      type: int
      returned: always
    nvlinks:
      description: The NVLinks the card has; empty when it has none.
      type: list
      elements: dict
      returned: always
      contains:
        link:
          description: Number of the link on this card.
          type: int
          returned: always
        active:
          description: Whether the link is up.
          type: bool
          returned: always
        remote_bus_id:
          description: PCI address of the other end; empty when unknown.
          type: str
          returned: always
    mig_capable:
      description: Whether the card can be split by MIG; V(null) when unknown.
      type: bool
      returned: always
    mig_enabled:
      description: Whether MIG is on now; V(null) when the card cannot or it is unknown.
      type: bool
      returned: always
    mig_pending:
      description: Whether MIG will be on after the next reset of the card; V(null) likewise.
      type: bool
      returned: always
    mig_devices:
      description: MIG instances that programs can be given.
      type: list
      elements: dict
      returned: always
      contains:
        index:
          description: Number of the instance on its card.
          type: int
          returned: always
        uuid:
          description: Name for E(CUDA_VISIBLE_DEVICES).
          type: str
          returned: always
          sample: MIG-8f2c1d5e-3c1b-5a77-9d5f-0a0e9d6c7b21
        profile:
          description: Size of the instance; empty when unknown.
          type: str
          returned: always
          sample: 3g.40gb
        gpu_instance:
          description: GPU instance id.
          type: int
          returned: always
        compute_instance:
          description: Compute instance id.
          type: int
          returned: always
        memory_total:
          description: Memory of the instance in bytes; V(null) when unknown.
          type: int
          returned: always
        memory_used:
          description: Memory in use, in bytes; V(null) when unknown.
          type: int
          returned: always
        memory_free:
          description: Memory that programs can still get, in bytes; V(null) when unknown.
          type: int
          returned: always
    processes:
      description: Who holds memory on the card, in order of pid; V(null) when the card does not say.
      type: list
      elements: dict
      returned: always
      contains:
        pid:
          description: Process id.
          type: int
          returned: always
        start_ticks:
          description:
            - Start time in clock ticks since boot, as in C(/proc/PID/stat); with the pid it names the process for good.
            - V(null) when the process has ended since or is hidden.
          type: int
          returned: always
        uid:
          description: Real user id; V(null) likewise.
          type: int
          returned: always
        user:
          description: Account name, or the user id as text where there is no account; V(null) likewise.
          type: str
          returned: always
        command:
          description: Name of the program; empty when unknown.
          type: str
          returned: always
        memory:
          description: Card memory it holds, in bytes; V(null) when the driver does not say.
          type: int
          returned: always
        kind:
          description: V(C) compute, V(G) graphics, V(C+G) both; V(M+C) for clients of the Multi-Process Service.
          type: str
          returned: always
        gpu_instance:
          description: GPU instance id; V(null) without MIG.
          type: int
          returned: always
        compute_instance:
          description: Compute instance id; V(null) without MIG.
          type: int
          returned: always
    lost:
      description: Whether the card has fallen off the bus.
      type: bool
      returned: always
    reason:
      description: Why something of this card is unknown; empty when all was read.
      type: str
      returned: always
driver_version:
  description: Version of the driver; empty without one.
  returned: always
  type: str
  sample: 550.163.01
nvml_version:
  description: Version of NVML; empty without a driver.
  returned: always
  type: str
  sample: 12.550.163.01
cuda_version:
  description: Newest CUDA version that the driver serves; empty without one.
  returned: always
  type: str
  sample: "12.4"
reason:
  description: Why there is no card, and what to do; empty when there are cards.
  returned: always
  type: str
  sample: there is no NVIDIA driver (libnvidia-ml.so.1 was not found); install the driver
ansible_facts:
  description: The same values as facts.
  returned: always
  type: dict
  contains:
    gpulab_nvml:
      description: RV(cards), RV(driver_version), RV(nvml_version), RV(cuda_version) and RV(reason).
      returned: always
      type: dict
"""

import importlib.util

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, probe_interpreters_for_module, respawn_module
from ansible.module_utils.gpulab.adapters.nvml import read_cards
from ansible.module_utils.gpulab.rules.cards import to_dict

PACKAGE_PYTHON = "/opt/gpulab/current/bin/python"
BINDING = "pynvml"


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    if importlib.util.find_spec(BINDING) is None and not has_respawned():
        interpreter = probe_interpreters_for_module([PACKAGE_PYTHON], BINDING)
        if interpreter:
            respawn_module(interpreter)
    facts = to_dict(read_cards())
    module.exit_json(changed=False, ansible_facts={"gpulab_nvml": facts}, **facts)


if __name__ == "__main__":
    main()
