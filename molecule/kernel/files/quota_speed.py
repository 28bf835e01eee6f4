"""Give made-up members limits on file systems, as the module does: COUNT HARD FOLDER..., HARD 0 for none."""

from __future__ import annotations

import sys
from pathlib import Path

from gpulab.rules.quota import Policy, parse_policy
from gpulab.services.quota import reconcile
from gpulab.services.quota_world import World

count, hard, *folders = sys.argv[1:]
root = Path("/root/quota_speed")
people = [f"member{number:04}" for number in range(int(count))]
(root / "etc").mkdir(parents=True, exist_ok=True)
(root / "etc/passwd").write_text("".join(f"{name}:x:{20000 + n}:20000::/:/bin/sh\n" for n, name in enumerate(people)))
(root / "etc/shadow").touch()
policy = (
    parse_policy({"folders": [{"path": each, "hard": hard} for each in folders]}, people) if hard != "0" else Policy()
)
print(sum(len(each.after) for each in reconcile(policy, people, World(root=root)).file_systems))
