#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: keep the packages of the NVIDIA driver from being moved."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_holds
short_description: Put the packages of the NVIDIA driver on hold
version_added: "0.1.0"
description:
  - Puts every installed package of the NVIDIA driver on hold in one step, however they are called and wherever they
    come from. C(apt-mark showhold) lists them; C(apt-get upgrade), C(full-upgrade) and unattended-upgrades leave them
    alone.
  - Holds that somebody else made are never taken off. Which ones are its own is noted down in
    C(/var/lib/gpulab/driver/record.json).
options:
  state:
    description:
      - V(held) for the driver on hold, V(loose) for no hold of ours, V(absent) to forget as well that the driver was
        installed by us.
    type: str
    choices: [held, loose, absent]
    default: held
  installed:
    description: Whether the driver was installed by us, for later runs to know.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Shows the packages on hold before and after.
    support: full
  idempotent:
    description: Changes nothing when the packages are on hold already.
    support: full
author: [gpulab contributors]
"""

EXAMPLES = r"""
- name: Keep the driver as it is
  nvidia_driver_holds:
    state: held
"""

RETURN = r"""
before:
  description: Packages of the driver that were on hold.
  returned: success
  type: list
  elements: str
after:
  description: Packages of the driver that are on hold.
  returned: success
  type: list
  elements: str
  sample: ["libcuda1:amd64", nvidia-smi]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services import driver


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "loose", "absent"], "default": "held"},
            "installed": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    state, world = module.params["state"], driver.World()
    try:
        if state == "absent":
            done = driver.release(world, dry_run=module.check_mode)
        else:
            done = driver.hold(
                world, wanted=state == "held", installed=module.params["installed"], dry_run=module.check_mode
            )
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    before, after = list(done.before), list(done.after)
    diff = {"before": "".join(f"{name}\n" for name in before), "after": "".join(f"{name}\n" for name in after)}
    module.exit_json(changed=done.changed, before=before, after=after, diff=diff)


if __name__ == "__main__":
    main()
