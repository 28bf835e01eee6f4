#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: further components of the archives that a server uses already."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_components
short_description: Have components of the archives that apt uses already
version_added: "0.1.0"
description:
  - Sees to it that every archive of a publisher that apt is configured for has some components, such as Debian's
    C(non-free-firmware) on a server that was installed without it.
  - The admin's own files are not touched. What they lack goes into a file of its own, under the same address, suite
    and keyring, so that it follows a change of mirror. When they lack nothing, the file is removed.
  - Archives whose lists were never downloaded are not known; run C(apt-get update) before.
options:
  path:
    description: The file, in C(/etc/apt/sources.list.d), ending in C(.sources).
    type: path
    required: true
  origin:
    description: The publisher, as C(apt-cache policy) shows it after C(o=).
    type: str
    required: true
  components:
    description: What each of its archives shall have.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
  idempotent:
    description: Changes nothing when nothing is lacking, or the file says so already.
    support: full
author: [gpulab contributors]
"""

EXAMPLES = r"""
- name: Have firmware that is not free
  apt_components:
    path: /etc/apt/sources.list.d/firmware.sources
    origin: Debian
    components: [non-free-firmware]
"""

RETURN = r"""
before:
  description: Content of the file before; empty when it was not there.
  returned: success
  type: str
after:
  description: Content of the file afterwards; empty when it is not needed.
  returned: success
  type: str
  sample: "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: trixie\nComponents: non-free-firmware\n"
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services import apt_sources


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "origin": {"type": "str", "required": True},
            "components": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        done = apt_sources.complete(
            Path(path),
            origin=module.params["origin"],
            components=module.params["components"],
            dry_run=module.check_mode,
        )
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    diff = {"before_header": path, "after_header": path, "before": done.before, "after": done.after}
    module.exit_json(changed=done.changed, before=done.before, after=done.after, diff=diff)


if __name__ == "__main__":
    main()
