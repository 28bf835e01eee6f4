"""Ansible module: many small files, folders and links in one step."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_paths
short_description: Keep many small files, folders and links in one step
version_added: 0.1.0
description:
  - Compares all paths first, proves the files that are new, and only then writes, in the order of the list. What is as
    it shall be is not touched.
  - It does for a list what M(ansible.builtin.template), M(ansible.builtin.file) and M(ansible.builtin.copy) do for one
    path each, in one call instead of two or three for each item of a loop.
options:
  paths:
    description: The paths, parents before what is in them.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where; absolute.
        type: path
        required: true
      state:
        description:
          - V(file) has the content; a link in its place is replaced, not followed.
          - V(directory) is there; parents that it lacks get the same mode and owner.
          - V(link) points to O(paths[].src), which need not be there.
        type: str
        choices: [file, directory, link]
        default: file
      content:
        description: Content of a file; it ends with one newline.
        type: str
      src:
        description: Where a link points.
        type: str
      mode:
        description: Permission bits in octal; V(0644) for a file and V(0755) for a folder when left out.
        type: str
      owner:
        description: Owner of a file or folder.
        type: str
        default: root
      group:
        description: Group of a file or folder.
        type: str
        default: root
      validate:
        description:
          - Command that proves a new file before any is written, with C(%s) for a copy of it. The copy has its name and
            lies beside copies of the others that are new.
        type: str
  absent:
    description: Files, links or whole folders that shall not be there; they go last.
    type: list
    elements: path
    default: []
attributes:
  check_mode:
    support: full
    details: New files are not proved in check mode, as what proves them may not be installed yet.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: A run that was killed can be repeated; each file is the old one or the new one.
  platform:
    support: full
    platforms: linux
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Keep a unit and its folder
  lab_paths:
    paths:
      - {path: /var/lib/lab, state: directory, mode: "0700"}
      - path: /etc/systemd/system/lab.service
        content: "{{ lookup('ansible.builtin.template', 'lab.service.j2') }}"
        validate: systemd-analyze verify %s

- name: Take them away
  lab_paths:
    absent: [/etc/systemd/system/lab.service, /var/lib/lab]
"""

RETURN = r"""
paths:
  description: Paths that differ from before.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/lab.service]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.services.lab_paths import apply, parse


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "paths": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "state": {"type": "str", "choices": ["file", "directory", "link"], "default": "file"},
                    "content": {"type": "str"},
                    "src": {"type": "str"},
                    "mode": {"type": "str"},
                    "owner": {"type": "str", "default": "root"},
                    "group": {"type": "str", "default": "root"},
                    "validate": {"type": "str"},
                },
            },
            "absent": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        wanted = parse(module.params["paths"], module.params["absent"])
        outcome = apply(wanted, dry_run=module.check_mode, scratch=module.tmpdir)
    except GpulabError as error:
        module.fail_json(msg=str(error))
    diff = [
        {"before_header": path, "after_header": path, "before": before, "after": after}
        for path, before, after in outcome.differences
    ]
    module.exit_json(changed=bool(outcome.changed), paths=outcome.changed, diff=diff)


if __name__ == "__main__":
    main()
