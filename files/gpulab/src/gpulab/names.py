"""Names and places that every part of gpulab agrees on; the roles use the same ones."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath

MEMBERS_GROUP = "gpu-members"
"""Unix group of every present member."""

ADMINS_GROUP = "gpu-admins"
"""Unix group of the members with `admin: true`."""

UID_MIN = 1000
"""First uid of people; accounts below belong to the system (Debian Policy 9.2.2, login.defs(5))."""

SETTINGS_FILE = PurePosixPath("/etc/gpulab/gpulab.toml")
SETTINGS_DIR = PurePosixPath("/etc/gpulab/conf.d")
"""One file for each section, written by the role that owns it."""

QUOTA_FILE = PurePosixPath("/etc/gpulab/quota.json")
"""The disk limits in force, as the inventory asks for them; everybody may read it."""

SYS_NET_DIR = PurePosixPath("/sys/class/net")

RUN_DIR = PurePosixPath("/run/gpulab")
"""What ends with a reboot: leases, the line of those who wait, the broker's socket, whose MIG instance is which."""

STATE_DIR = PurePosixPath("/var/lib/gpulab")

PUBLIC_DIR = PurePosixPath("/home/admin")
"""The folder every member can read: the booking sheet, the hardware ledger, the rules."""

SHEET_FILE = PUBLIC_DIR / "gpu_schedule.csv"
LEDGER_FILE = PUBLIC_DIR / "GPU_INFO.md"
HANDBOOK_DIR = PUBLIC_DIR / "GPU_SCHEDULE"
INVENTORY_FILE = HANDBOOK_DIR / "gpu_inventory.csv"

BINDINGS_FILE = RUN_DIR / "bindings"
"""A line for each member who has a MIG instance: account name and UUID; everybody reads it."""

BOOKING_STATE_DIR = STATE_DIR / "booking"
CHECKS_STATE_DIR = STATE_DIR / "checks"
DATASETS_STATE_DIR = STATE_DIR / "datasets"
LEDGER_STATE_DIR = STATE_DIR / "ledger"
MEMBERS_STATE_DIR = STATE_DIR / "members"
NET_STATE_DIR = STATE_DIR / "net"
QUOTA_STATE_DIR = STATE_DIR / "quota"
REPORTS_DIR = STATE_DIR / "reports"
SLURM_STATE_DIR = STATE_DIR / "slurm"
TIERS_STATE_DIR = STATE_DIR / "tiers"
"""An empty file for each tier that was ever begun here and not yet taken away, named like it."""

LEASES_DIR = RUN_DIR / "leases"
QUEUE_DIR = RUN_DIR / "queue"
BROKER_SOCKET = RUN_DIR / "broker.sock"

SLURM_CLUSTER_FILE = PurePosixPath("/var/lib/slurm/slurmctld/clustername")
"""slurmctld writes it when its state is new, and never again: "lab|2351", since 24.05 with the cluster's number."""

SLURM_CARDS_FILE = RUN_DIR / "slurm-cards"
"""A line for each card and MIG instance, when slurmd started: device file and UUID; members' tasks look them up."""

SAMPLES_FILE = STATE_DIR / "samples" / "samples.db"
"""What runs on the cards, minute by minute (adapters/sample_store.py); admins may read it."""

LOGIN_DIR = RUN_DIR / "login"
"""What members' shells show at login: a file for each language, and in `members` one for each who has something."""

BOARD_FILE = RUN_DIR / "board" / "index.html"
"""The board, which nginx serves; in a folder of its own."""

RECLAIM_RUN_DIR = RUN_DIR / "reclaim"
"""What idle reclaim remembers. It is about processes, so it ends with the boot."""


def under(root: PurePath, path: PurePosixPath) -> str:
    """Place an absolute path below another root folder, as tests do.

    Args:
        root: the folder that stands for `/`.
        path: an absolute path.

    Returns:
        The joined path as text; `path` itself when root is `/`.
    """
    return str(root / path.relative_to("/"))
