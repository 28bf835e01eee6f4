#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: what shall be done about the NVIDIA driver."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_plan
short_description: Judge what shall be done about the NVIDIA driver
version_added: "0.1.0"
description:
  - Looks at cards, kernel module, library, packages, processes on the cards and Secure Boot, and says whether the
    driver is to be installed, kept from being moved, or left alone. Changes nothing.
  - Fails when something must be settled first, with one line that says what and how. It does so when kernel module and
    library are of different versions, when a driver would be changed under running processes (named by account and
    PID), when a change takes a reboot that is not allowed, and when packages would be mixed with a driver that belongs
    to none.
  - Needs nothing on the server but Python.
options:
  install:
    description:
      - V(true) to install what is missing and see to the driver, V(false) to leave it alone.
      - V(auto) to install one where there are cards and no driver of any kind, and to keep one that is there.
    type: str
    choices: [auto, "true", "false"]
    default: auto
  version:
    description: Version of the driver, such as V(550.163.01); empty for what is installed, or else what apt offers.
    type: str
    default: ""
  packages:
    description: Packages that carry the driver's version.
    type: list
    elements: str
    default: []
  tools:
    description: Packages of the driver with versions of their own.
    type: list
    elements: str
    default: []
  allow_reboot:
    description: Whether the server may be rebooted.
    type: bool
    default: false
  local:
    description: Whether Ansible runs on the server itself, which then is never rebooted.
    type: bool
    default: false
attributes:
  check_mode:
    description: The same, but what it would fail for is a warning, since it may be settled by the time of the real run.
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
- name: See what shall be done about the driver
  nvidia_driver_plan:
    packages: [nvidia-kernel-dkms, libcuda1, nvidia-smi]
    tools: [nvidia-persistenced]
  register: result
"""

RETURN = r"""
action:
  description: V(install) and keep it, V(keep) what is there from being moved, or V(leave) it alone.
  returned: always
  type: str
  sample: install
reason:
  description: Why.
  returned: always
  type: str
  sample: there are 4 NVIDIA cards and no driver
specifications:
  description: The packages, with their version where one is wanted, as apt understands them.
  returned: always
  type: list
  elements: str
  sample: ["nvidia-smi=550.163.01-*", nvidia-persistenced]
headers:
  description: Packages with the kernel headers that the module is built against.
  returned: always
  type: list
  elements: str
  sample: [linux-headers-6.12.43+deb13-amd64, linux-headers-amd64]
changes:
  description: Packages that are not installed, or not in the wanted version.
  returned: always
  type: list
  elements: str
load:
  description: Whether the kernel module is there and only needs to be loaded.
  returned: always
  type: bool
reboot:
  description: Whether a reboot is needed and allowed.
  returned: always
  type: bool
stale:
  description: Initial RAM disks that were made before nouveau was switched off.
  returned: always
  type: list
  elements: str
managed:
  description: Whether an earlier run left anything that keeps the driver from being moved.
  returned: always
  type: bool
cards:
  description: PCI addresses of the cards.
  returned: always
  type: list
  elements: str
loaded:
  description: Version of the kernel module that is loaded; empty when none is.
  returned: always
  type: str
  sample: 550.163.01
library:
  description: Version of the library; empty when there is none.
  returned: always
  type: str
  sample: 550.163.01
signing:
  description: What Secure Boot asks for before the module can be loaded; empty where it asks for nothing.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.rules.driver import Wish
from ansible.module_utils.gpulab.services import driver


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "install": {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
            "version": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "tools": {"type": "list", "elements": "str", "default": []},
            "allow_reboot": {"type": "bool", "default": False},
            "local": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    lists = {name: tuple(module.params[name]) for name in ("packages", "tools")}
    try:
        look = driver.look(Wish(**{**module.params, **lists}), driver.World())
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    answer = driver.to_dict(look)
    for line in look.plan.warnings:
        module.warn(line)
    if look.plan.errors and not module.check_mode:
        module.fail_json(msg="; ".join(look.plan.errors), **answer)
    for line in look.plan.errors:
        module.warn(line)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
