"""Before slurmd starts: device files are made, and what a task looks up is written down."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jinja2
import pytest
from gpulab.rules.cards import Card, Cards, MigDevice
from gpulab.services.slurm_cards import prepare

TEMPLATE = Path(__file__).parents[3] / "roles/tier_slurm/templates/task_prolog.sh.j2"
A100 = "NVIDIA A100-SXM4-80GB"
WHOLE = Card(index=0, uuid="GPU-0", name=A100, minor=2, mig_enabled=False)
SPLIT = Card(
    index=1,
    uuid="GPU-1",
    name=A100,
    minor=0,
    mig_enabled=True,
    mig_devices=(
        MigDevice(0, "MIG-a", "3g.40gb", 1, 0, None, None),
        MigDevice(1, "MIG-b", "3g.40gb", 2, 0, None, None),
    ),
)
LOST = Card(index=2, lost=True, reason="it has fallen off the bus")


@pytest.fixture
def root(tmp_path):
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("gpu0/gi1/access 21\ngpu0/gi1/ci0/access 22\ngpu0/gi2/access 30\ngpu0/gi2/ci0/access 31\n")
    return tmp_path


def test_device_files_are_made_and_uuids_written_down(root):
    made = []
    problems = prepare(
        root,
        read=lambda **_: Cards(cards=(WHOLE, SPLIT, LOST)),
        make_missing=lambda card, instance, _: made.append((card.index, instance and instance.uuid)) or "",
    )
    assert problems == []
    assert made == [(0, None), (1, "MIG-a"), (1, "MIG-b")]
    table = root / "run/gpulab/slurm-cards"
    assert table.read_text().splitlines() == [
        "/dev/nvidia2 GPU-0",
        "/dev/nvidia-caps/nvidia-cap22 MIG-a",
        "/dev/nvidia-caps/nvidia-cap31 MIG-b",
    ]
    assert table.stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_made_is_said_and_the_rest_goes_on(root):
    (root / "proc/driver/nvidia-caps/mig-minors").write_text("gpu0/gi2/access 30\ngpu0/gi2/ci0/access 31\n")
    problems = prepare(
        root,
        read=lambda **_: Cards(cards=(WHOLE, SPLIT), reason="a note"),
        make_missing=lambda card, *_: "" if card.mig_enabled else "nvidia-modprobe cannot make it",
    )
    assert problems[:2] == ["a note", "nvidia-modprobe cannot make it"]
    assert "does not list gpu0/gi1/access" in problems[2]
    assert "MIG-b" in (root / "run/gpulab/slurm-cards").read_text()


@pytest.mark.parametrize(
    ("enforced", "held", "visible", "expected"),
    [
        (True, {"SLURM_STEP_GPUS": "2"}, "0", "MIG-a"),
        (True, {"SLURM_STEP_GPUS": "2,3"}, "0,1", "MIG-a,MIG-b"),
        (True, {"SLURM_STEP_GPUS": "2,3"}, "1", "MIG-b"),  # a task bound to one of the step's two
        (True, {"SLURM_JOB_GPUS": "3"}, "0", "MIG-b"),  # the batch script
        (True, {"SLURM_JOB_GPUS": "1,3", "SLURM_STEP_GPUS": "1"}, "0", None),  # whole cards stay numbers
        (True, {"SLURM_STEP_GPUS": "1,3"}, "0,1", "GPU-x,MIG-b"),
        (True, {"SLURM_STEP_GPUS": "2"}, "", None),
        (True, {"SLURM_STEP_GPUS": "9"}, "0", None),
        (False, {"SLURM_STEP_GPUS": "2"}, "2", "MIG-a"),  # without cgroups the number is the machine's
    ],
)
def test_a_task_sees_the_uuids_of_its_instances(tmp_path, enforced, held, visible, expected):
    table = tmp_path / "slurm-cards"
    table.write_text("/dev/nvidia2 GPU-0\n/c22 MIG-a\n/c31 MIG-b\n/dev/nvidia1 GPU-x\n")
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    environment.filters["comment"] = lambda text: f"# {text}"
    script = environment.from_string(TEMPLATE.read_text()).render(
        ansible_managed="managed",
        __tier_slurm_plan={"cards": {"gpu1": ["/dev/nvidia2", "/dev/nvidia1", "/c22", "/c31"]}, "enforced": enforced},
        __tier_slurm_node={"node": {"name": "gpu1"}},
    )
    done = subprocess.run(
        ["sh", "-c", script.replace("/run/gpulab/slurm-cards", str(table))],
        env={"PATH": os.environ["PATH"], **held, "CUDA_VISIBLE_DEVICES": visible},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == (f"export CUDA_VISIBLE_DEVICES={expected}\n" if expected else "")
    assert done.stderr == ""
