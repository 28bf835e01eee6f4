"""A machine with quota that lives in memory: what the kernel keeps, which tools were run, and nothing else."""

from __future__ import annotations

from gpulab.rules.mounts import Mount
from gpulab.rules.quota import Grace, Limits, Usage
from gpulab.services.quota_world import World

USER, PROJECT = 0, 2


class Kernel:
    """Quota of file systems by mount point."""

    def __init__(self):
        self.counted = {}
        self.enforced = {}
        self.limits = {}
        self.used = {}
        self.graces = {}
        self.writes = 0
        self.reads = 0

    def mount(self, point, *, counted=(), enforced=()):
        self.counted[point] = set(counted)
        self.enforced[point] = set(enforced)

    def flags(self, path, kind):
        point = self.point(path)
        return kind in self.counted[point], kind in self.enforced[point]

    def point(self, path):
        return max((point for point in self.counted if f"{path}/".startswith(point.rstrip("/") + "/")), key=len)

    def enforce(self, path, kind, *, on):
        (set.add if on else set.discard)(self.enforced[self.point(path)], kind)

    def grace(self, path, kind):
        return self.graces.get((self.point(path), kind), Grace())

    def set_grace(self, path, kind, grace):
        self.graces[self.point(path), kind] = grace

    def usages(self, path, kind, owners):
        self.reads += len(owners)
        point = self.point(path)
        return {
            owner: Usage(self.limits.get((point, kind, owner), Limits()), *self.used.get((point, owner), (0, 0)))
            for owner in owners
        }

    def set_limits(self, path, kind, wanted):
        self.writes += len(wanted)
        for owner, limits in wanted.items():
            self.limits[self.point(path), kind, owner] = limits


class Machine:
    """Folders of a real temporary directory that count as mount points, and accounts."""

    def __init__(self, folder, members):
        self.root = folder / "root"
        (self.root / "etc").mkdir(parents=True)
        lines = [f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash" for name, uid in members.items()]
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n" + "\n".join(lines) + "\n")
        (self.root / "etc/shadow").write_text("")
        (self.root / "etc/fstab").write_text("")
        self.kernel = Kernel()
        self.mounts = [Mount("/", "ext4", "/dev/vda", "254:0")]
        self.kernel.mount("/")
        self.ran = []
        self.projects = {}
        self.folder = folder
        self.world = World(
            root=self.root,
            kernel=self.kernel,
            run=self.run,
            read_mounts=lambda: tuple(self.mounts),
            project_of=lambda path: self.projects.get(path, 0),
            put_in_project=self.put_in_project,
        )

    def disk(self, name, kind, *, counted=(), enforced=(), source=None):
        """Mount a file system; return its mount point."""
        path = self.folder / name
        path.mkdir(exist_ok=True)
        point = str(path)
        self.mounts.append(Mount(point, kind, source or f"/dev/{name}", f"254:{len(self.mounts)}"))
        self.kernel.mount(point, counted=counted, enforced=enforced)
        return point

    def put_in_project(self, path, number):
        self.projects[path] = number
        return 1

    def run(self, argv):
        self.ran.append(list(argv))
        if argv[0] in {"quotaon", "quotaoff"}:
            for state in (self.kernel.counted, self.kernel.enforced):
                (set.add if argv[0] == "quotaon" else set.discard)(state[argv[-1]], USER)
