#!/usr/bin/python
# Copyright: the gpulab authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: the members of a lab as users of Slurm, all of them in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounts
short_description: Keep Slurm's users, accounts and limits as one list says
version_added: 0.1.0
description:
  - Makes the association tree in slurmdbd agree with a list of members. Reads it once, however long the list is, writes
    only what differs, in one session of C(sacctmgr), and reads it again.
  - A member's first group is the account that pays for the jobs; those without a group share one account. Everybody has
    one association, so that a limit holds for the person, whatever the partition.
  - With O(members[].state=absent) the member's jobs are cancelled and the associations removed. Jobs and use of the
    past stay in the database.
  - Whoever changes groups keeps the jobs that wait or run in the former account; that one takes no new jobs, and goes
    with a later run.
  - Members with O(members[].admin=true) become administrators of Slurm.
  - Accounts that gpulab did not make (their organization is not C(gpulab)), and users who are in none of its accounts,
    are never touched.
options:
  members:
    description: Everybody who has or had an account, as in C(lab_members). Members who left stay in it.
    type: list
    elements: dict
    required: true
  cluster:
    description: The cluster's name.
    type: str
    default: lab
  account:
    description: Account of members without a group.
    type: str
    default: members
  account_shares:
    description: Weight of accounts in the fair share, by name; the others have 1.
    type: dict
    default: {}
  limits:
    description:
      - What one member may have at once. C(cards) and MIG instances of running jobs, C(jobs) that run, C(submitted)
        jobs that wait or run, and C(shares), the weight in the fair share of the account.
      - A key that is left out, or V(null), is no limit.
    type: dict
    default: {}
  member_limits:
    description: What differs for some members, by name, with the keys of O(limits).
    type: dict
    default: {}
  classes:
    description: Names of the classes of golden hours; each one is a QOS that everybody may use.
    type: list
    elements: str
    default: [long, short, offline]
requirements:
  - Slurm's C(sacctmgr), C(squeue) and C(scancel), and a running slurmdbd and slurmctld.
attributes:
  check_mode:
    support: full
    details: On a new server, where Slurm is not there to be asked, a warning says so.
  diff_mode:
    support: full
    details: Shows the associations of each user and account that changes, before and after.
  idempotent:
    support: full
    details: A run that was killed can be repeated.
  platform:
    support: full
    platforms: linux
notes:
  - Limits on cards need the resource C(gres/gpu), which slurmctld registers when it first starts.
author:
  - The gpulab authors
extends_documentation_fragment:
  - action_common_attributes
"""

EXAMPLES = r"""
- name: Keep the members as users of Slurm
  slurm_accounts:
    members:
      - {name: alice, admin: true}
      - {name: bob, groups: [vision]}
      - {name: carol, state: absent}
    limits: {cards: 4, submitted: 200}
    member_limits:
      bob: {cards: 2}
    account_shares: {vision: 2}
"""

RETURN = r"""
changes:
  description: What was done to which user, account or QOS, or would be in check mode.
  returned: always
  type: dict
  sample: {"bob": ["join account vision shares 1, cards 2"], "carol": ["cancel all jobs", "leave Slurm; history stays"]}
errors:
  description: What failed, one line each. The next run tries it again.
  returned: always
  type: list
  elements: str
  sample: ["bob: still to do: set cards 2"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpulab.errors import GpulabError
from ansible.module_utils.gpulab.rules import slurm_inputs
from ansible.module_utils.gpulab.rules.members import parse_members
from ansible.module_utils.gpulab.rules.slurm_accounts import Wish, account_of, wish
from ansible.module_utils.gpulab.services.slurm_accounts import Outcome, World, reconcile


def read_wish(params: dict) -> Wish:
    members = parse_members(params["members"])
    present = [member for member in members if member.present]
    limits = slurm_inputs.parse_limits(params["limits"], "tier_slurm_limits")
    return wish(
        members,
        cluster=params["cluster"],
        fallback=params["account"],
        limits=limits,
        member_limits=slurm_inputs.parse_member_limits(
            params["member_limits"], limits, [member.name for member in present]
        ),
        shares=slurm_inputs.parse_account_shares(
            params["account_shares"], sorted({account_of(member, params["account"]) for member in present})
        ),
        classes=params["classes"],
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "members": {"type": "list", "elements": "dict", "required": True},
            "cluster": {"type": "str", "default": "lab"},
            "account": {"type": "str", "default": "members"},
            "account_shares": {"type": "dict", "default": {}},
            "limits": {"type": "dict", "default": {}},
            "member_limits": {"type": "dict", "default": {}},
            "classes": {"type": "list", "elements": "str", "default": ["long", "short", "offline"]},
        },
        supports_check_mode=True,
    )
    outcome = Outcome()
    try:
        wanted = read_wish(module.params)
        if module.check_mode and module.get_bin_path("sacctmgr") is None:
            outcome.warnings.append("Slurm is not installed yet; its accounts are made by the real run")
            outcome.actions.update({name: [f"join account {user.account}"] for name, user in wanted.users.items()})
        else:
            outcome = reconcile(wanted, World(), dry_run=module.check_mode)
    except GpulabError as error:
        module.fail_json(msg=str(error))
    for warning in outcome.warnings:
        module.warn(warning)
    result = {
        "changed": outcome.changed,
        "changes": outcome.actions,
        "errors": outcome.errors,
        "diff": [
            {"before_header": name, "after_header": name, "before": before, "after": after}
            for name, before, after in outcome.differences
        ],
    }
    if outcome.errors:
        module.fail_json(msg="; ".join(outcome.errors[:3]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
