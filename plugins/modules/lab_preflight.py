#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: judge inventory and machine before anything changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_preflight
short_description: Judge inventory and machine before anything changes
version_added: "0.1.0"
description:
  - Reads the lab-wide variables strictly and the machine's facts, computes the tier, and refuses what it cannot
    understand with one line that names the variable, its value and the remedy.
  - Changes nothing.
options:
  variables:
    description: The lab-wide variables that are set, by name; leave the mail password out.
    type: dict
    required: true
  defined:
    description: Names of all variables that look like lab-wide ones, to find typing errors.
    type: list
    elements: str
    default: []
  facts:
    description: Facts of the machine, as the C(setup) module returns them.
    type: dict
    required: true
attributes:
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Nothing is changed, so there is no difference to show.
    support: none
  idempotent:
    description: Never reports a change.
    support: full
author: [gpulab contributors]
"""

EXAMPLES = r"""
- name: Judge the inventory and the machine
  lab_preflight:
    variables:
      lab_admin: alice
      lab_members:
        - {name: alice, admin: true}
        - {name: bob}
    facts: "{{ ansible_facts }}"
  register: result
"""

RETURN = r"""
tier:
  description: The tier that the inventory asks for.
  returned: success
  type: str
  sample: table
tier_reason:
  description: Why this tier.
  returned: success
  type: str
  sample: group_size is 4
group_size:
  description: How many people the rules are made for.
  returned: success
  type: int
  sample: 4
old_tiers:
  description: Tiers that were installed earlier and are not wanted now.
  returned: success
  type: list
  elements: str
  sample: [table]
extras:
  description: Roles that few labs need, those of C(board) and C(bandwidth) that are wanted now or there from before.
  returned: success
  type: list
  elements: str
  sample: [board]
windows:
  description:
    - The golden hours as pages show them, each with C(name), C(hours), C(days_en), C(days_zh), C(class), C(max_cards),
      C(max_hours) (null without a limit), C(weight), and what it is for, C(en) and C(zh).
  returned: success
  type: list
  elements: dict
  sample:
    - name: afternoon
      hours: 14:00-18:00
      days_en: every day
      days_zh: 每天
      class: short
      max_cards: 1
      max_hours: 4.0
      weight: 0.5
      en: short jobs, debugging, preprocessing
      zh: 短任务、调试、数据预处理
plan:
  description: What the run is about, risky steps first.
  returned: success
  type: list
  elements: str
  sample: ["server: Debian 13, new to gpulab", "tier: table (group_size is 4)"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.rules.windows import rows
from ansible.module_utils.gpulab.services import preflight


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "variables": {"type": "dict", "required": True},
            "defined": {"type": "list", "elements": "str", "default": []},
            "facts": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        found = preflight.inspect(
            module.params["variables"], defined=module.params["defined"], facts=module.params["facts"]
        )
    except GpulabError as error:
        module.fail_json(msg=str(error))
    for warning in found.warnings:
        module.warn(warning)
    module.exit_json(
        changed=False,
        tier=found.lab.tier,
        tier_reason=found.lab.tier_reason,
        group_size=found.lab.group_size,
        old_tiers=list(found.old_tiers),
        extras=list(found.extras),
        windows=rows(found.lab.windows),
        plan=list(found.plan),
    )


if __name__ == "__main__":
    main()
