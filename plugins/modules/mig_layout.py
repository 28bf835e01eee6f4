#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: how the cards of a host are split by MIG."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_layout
short_description: Split NVIDIA cards into MIG instances
version_added: 0.1.0
description:
  - Gives each card the MIG mode and the instances that are asked for, and nothing else. Cards that are not in the
    layout are left alone.
  - The whole layout is checked against the cards before anything changes. One line says which card cannot have what,
    why not, and which layouts come nearest.
  - A card that has its layout already is not touched. Otherwise instances that fit stay, the others are removed, new
    ones are made at places of our choosing, and the card is read back and compared.
  - Each card is changed wholly or not at all. When a step fails its former layout is brought back, with new UUIDs for
    instances that were gone meanwhile. A run that was killed can be repeated.
  - A card that a process runs on is never changed. The module names the account and the process, and fails after it
    has seen to the other cards.
  - What a card has got is noted down in C(/etc/gpulab/mig.json), from which C(gpulab mig apply) brings it back after a
    reboot.
options:
  layout:
    description:
      - Either a document of nvidia-mig-parted, unchanged, with its keys C(version) and C(mig-configs).
      - Or profiles by index of the card, separated by commas, or V(off) for a card without MIG.
      - A profile such as C(1c.3g.40gb) is a compute instance of one slice in a GPU instance of three.
      - Empty for nothing asked for. Then nothing is done.
    type: raw
    required: true
  label:
    description: Which configuration of the document is meant. Not needed when there is only one.
    type: str
    default: ""
  bindings:
    description:
      - Account names of the present members, each with the instance that is theirs, C(mig-CARD-INSTANCE), such as
        V(mig-0-1) for the second instance of the first card. Instances are numbered as C(nvidia-smi -L) shows them,
        in the order of GPU instance id, then compute instance id.
      - An empty value leaves the member to O(spread), V(none) keeps them out of it.
      - An instance that O(layout) does not make is refused before anything changes.
      - Who has which instance is noted down in C(/etc/gpulab/bindings.json). The UUIDs of now are in
        C(/run/gpulab/bindings), a line for each member, which is written anew after every change of a layout.
    type: dict
    default: {}
  spread:
    description:
      - Whether the others in O(bindings) get an instance too, spread evenly. Who has one keeps it. Somebody moves only
        where one instance would otherwise have two people more than another.
    type: bool
    default: false
requirements:
  - The Python package C(nvidia-ml-py), version 12.535.108 or newer. Where the host's own Python lacks it, the module
    goes on under C(/opt/gpulab/current/bin/python), which role C(runtime) installs.
  - A driver of branch R525 or newer.
attributes:
  check_mode:
    support: full
    details:
      - A card that is in use is a warning, since it may be free by the time of the real run.
      - On a new host, where NVML cannot be asked yet, a warning says so.
  diff_mode:
    support: full
    details: Shows mode and instances of each card that changes, and who has which instance, before and after.
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
notes:
  - On Ampere cards a change of the mode resets the card, which programs that hold it open prevent, for instance
    C(nvidia-persistenced) or an exporter. Where the card cannot be reset at all, as in virtual machines,
    RV(cards[].result) is V(waiting) until the next reboot.
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Split the first card, leave the second one whole
  mig_layout:
    layout:
      0: 3g.40gb,2g.20gb,1g.10gb
      1: "off"

- name: Use an existing configuration of nvidia-mig-parted
  mig_layout:
    layout: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') | from_yaml }}"
    label: all-balanced

- name: Give bob an instance of his own, and carol one of those with the fewest people
  mig_layout:
    layout:
      0: 3g.40gb,2g.20gb,1g.10gb
    bindings:
      bob: mig-0-0
      carol: ""
    spread: true
"""

RETURN = r"""
cards:
  description: The cards that something is asked for, in order of index.
  returned: always
  type: list
  elements: dict
  sample:
    - index: 0
      uuid: GPU-5f0a9c1e-7d7f-4b0e-9b1c-0c3a7f3d2a10
      name: NVIDIA A100-SXM4-80GB
      result: changed
      changed: true
      steps: [switch MIG on, make 3g.40gb at 4]
      before: [MIG off]
      after: [MIG on, 3g.40gb at 4]
      reason: ""
  contains:
    index:
      description: NVML index, the number that C(nvidia-smi) shows.
      type: int
      returned: always
    uuid:
      description: Unique name of the card; empty when it cannot be reached.
      type: str
      returned: always
    name:
      description: Model; empty when the card cannot be reached.
      type: str
      returned: always
    result:
      description:
        - V(unchanged) or V(changed), in check mode also for what would be; V(waiting) for a reboot; V(refused) because
          the card is in use; V(failed).
      type: str
      returned: always
    changed:
      description: Whether something about the card differs from before, or would.
      type: bool
      returned: always
    steps:
      description: What was done, or would be, in words.
      type: list
      elements: str
      returned: always
    before:
      description: Mode and instances it had; each instance with the memory slice it begins at.
      type: list
      elements: str
      returned: always
    after:
      description: Mode and instances it has, or would have.
      type: list
      elements: str
      returned: always
    reason:
      description: Why the card has not got what is asked for; may be empty.
      type: str
      returned: always
recorded:
  description: Whether C(/etc/gpulab/mig.json) changed, or would.
  returned: always
  type: bool
bindings:
  description: Who has which instance, in order of name.
  returned: always
  type: list
  elements: dict
  sample:
    - user: bob
      instance: mig-0-1
      uuid: MIG-6f3a2c1e-0d7f-5b0e-9b1c-0c3a7f3d2a10
  contains:
    user:
      description: Account name.
      type: str
      returned: always
    instance:
      description: The instance by its numbers.
      type: str
      returned: always
    uuid:
      description: The name for C(CUDA_VISIBLE_DEVICES); empty when there is no such instance now.
      type: str
      returned: always
"""

import importlib.util

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, probe_interpreters_for_module, respawn_module
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.rules.mig_bindings import parse_wishes
from ansible.module_utils.gpulab.rules.mig_layout import parse_layout
from ansible.module_utils.gpulab.services import mig

PACKAGE_PYTHON = "/opt/gpulab/current/bin/python"
BINDING = "pynvml"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "layout": {"type": "raw", "required": True},
            "label": {"type": "str", "default": ""},
            "bindings": {"type": "dict", "default": {}},
            "spread": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if importlib.util.find_spec(BINDING) is None and not has_respawned():
        interpreter = probe_interpreters_for_module([PACKAGE_PYTHON], BINDING)
        if interpreter:
            respawn_module(interpreter)
    try:
        layout = parse_layout(module.params["layout"], label=module.params["label"])
        wishes = parse_wishes(module.params["bindings"], spread=module.params["spread"])
        if not layout.entries:
            report = mig.Report()
        elif module.check_mode:
            report = mig.preview(layout, mig.World(), wishes=wishes)
        else:
            report = mig.apply(layout, mig.World(), record=True, wishes=wishes)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    answer = mig.to_dict(report)
    answer["diff"] = [
        {
            "before_header": card.title,
            "after_header": card.title,
            "before": "".join(f"{line}\n" for line in card.before),
            "after": "".join(f"{line}\n" for line in card.after),
        }
        for card in report.cards
        if card.changed
    ]
    if report.bound.before != report.bound.after:
        answer["diff"].append(
            {
                "before_header": "bindings",
                "after_header": "bindings",
                "before": "".join(f"{line}\n" for line in report.bound.before),
                "after": "".join(f"{line}\n" for line in report.bound.after),
            }
        )
    for line in report.warnings if module.check_mode else (*report.warnings, *report.bound.missing):
        module.warn(line)
    if report.failed or (report.errors and not module.check_mode):
        module.fail_json(msg="; ".join(report.errors), **answer)
    for line in report.errors:
        module.warn(line)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
