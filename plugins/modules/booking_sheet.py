#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the booking sheet of the table tier is there and only the right people can write to it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: booking_sheet
short_description: Keep the booking sheet of a GPU server present
version_added: 0.1.0
description:
  - Makes the sheet with its header when there is none, or nothing but empty lines in it.
  - What stands in a sheet is never changed, whoever wrote it and however. Lines that cannot be used are returned in
    RV(problems), and the first few are shown as warnings.
  - A symbolic link, FIFO, folder or device in the sheet's place is refused and left alone.
options:
  path:
    description: Where the sheet lies.
    type: path
    default: /home/admin/gpu_schedule.csv
  owner:
    description: Account that owns it.
    type: str
    default: root
  group:
    description: Group that may edit it by hand.
    type: str
    default: gpu-admins
  mode:
    description: Permission bits, octal.
    type: str
    default: "0664"
  state_dir:
    description: Folder of root's with the lock that C(gpu-schedule) holds while it writes; made when it is not there.
    type: path
    default: /var/lib/gpulab/booking
attributes:
  check_mode:
    support: full
    details: Also before the group exists.
  diff_mode:
    support: full
    details: Shows owner, group and mode, and the header when it is written.
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
- name: Keep the booking sheet
  booking_sheet:
  register: __sheet

- name: Stop when somebody's booking does not count
  ansible.builtin.assert:
    that: __sheet.problems | length == 0
"""

RETURN = r"""
path:
  description: The sheet.
  returned: always
  type: str
  sample: /home/admin/gpu_schedule.csv
problems:
  description: Lines of the sheet that do not count as bookings, in order.
  returned: always
  type: list
  elements: dict
  sample:
    - line: 7
      reason: start_time '12/1/2026 9:00' is not a time; write it as 2026-12-01 09:00, year first
  contains:
    line:
      description: Line number, from 1.
      type: int
      returned: always
    reason:
      description: What is wrong with the line and what is expected.
      type: str
      returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services.sheet_presence import Access, ensure

MOST_WARNINGS = 5


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/home/admin/gpu_schedule.csv"},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "gpu-admins"},
            "mode": {"type": "str", "default": "0664"},
            "state_dir": {"type": "path", "default": "/var/lib/gpulab/booking"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    access = Access(module.params["owner"], module.params["group"], module.params["mode"])
    try:
        found = ensure(Path(path), access, state_dir=Path(module.params["state_dir"]), dry_run=module.check_mode)
    except (GpulabError, OSError) as error:
        module.fail_json(msg=str(error))
    for line, reason in found.problems[:MOST_WARNINGS]:
        module.warn(f"{path}, line {line}: {reason}")
    module.exit_json(
        changed=found.changed,
        path=path,
        problems=[{"line": line, "reason": reason} for line, reason in found.problems],
        diff={"before_header": path, "after_header": path, "before": found.before, "after": found.after},
    )


if __name__ == "__main__":
    main()
