#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the store of datasets, and the folder where everybody reads them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_mount
short_description: Show published datasets at a folder that nobody can write through
version_added: 0.1.0
description:
  - Makes the store, a folder of root's, and mounts the published datasets in it read-only (bind, ro, nosuid, nodev)
    from fstab. Whether the kernel refuses writes is read back after mounting.
  - Everything is checked before anything changes. A folder that is missing, holds something already, or that somebody
    else than root could exchange is refused in one line.
  - No file in the store is read, changed or given another owner.
options:
  path:
    description: The folder that everybody reads. The folder above must be there. Needed when O(state=present).
    type: str
  store:
    description: Where the datasets really lie. The folder above must be there. Needed when O(state=present).
    type: str
  state:
    description: V(absent) unmounts and takes the line out of fstab; the datasets stay in the store.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The steps are returned instead.
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
- name: Show the datasets
  dataset_mount:
    path: /data/datasets
    store: /data/.datasets

- name: Show them nowhere
  dataset_mount:
    state: absent
"""

RETURN = r"""
steps:
  description: What was done, or would be; empty when nothing.
  returned: always
  type: list
  elements: str
  sample: ["make the folder /data/.datasets", "mount /data/.datasets/published at /data/datasets, read-only"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services import dataset_mount


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "str"},
            "store": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ("path", "store"))],
        supports_check_mode=True,
    )
    wanted, world = module.params, dataset_mount.World()
    try:
        if wanted["state"] == "present":
            outcome = dataset_mount.reconcile(wanted["path"], wanted["store"], world, dry_run=module.check_mode)
        else:
            outcome = dataset_mount.remove(world, dry_run=module.check_mode)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(outcome.steps), steps=outcome.steps)


if __name__ == "__main__":
    main()
