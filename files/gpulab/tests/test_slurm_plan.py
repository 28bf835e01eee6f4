"""The Slurm tier's part of the inventory: refused by name, value and remedy, or turned into lines."""

from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.slurm_node import CGROUP_V1, CGROUP_V2, NO_CGROUP, Confinement
from gpulab.rules.slurm_plan import weakest
from gpulab.services.slurm_plan import judge

MEMBERS = [
    {"name": "alice", "admin": True, "groups": ["vision"]},
    {"name": "bob"},
    {"name": "carol", "state": "absent"},
]
BATCH = {"name": "batch", "default": True}


def node(name="gpu1", cards=4, **changes):
    values = {
        "name": name,
        "address": "192.0.2.7",
        "cpus": 64,
        "sockets": 2,
        "cores": 32,
        "memory": 515_000,
        "cards": [
            {
                "index": index,
                "uuid": f"GPU-{index}",
                "name": "NVIDIA A100-SXM4-80GB",
                "minor": index,
                "memory_total": 80 << 30,
                "mig_enabled": False,
                "lost": False,
                "reason": "",
                "mig_devices": [],
            }
            for index in range(cards)
        ],
        "reason": "" if cards else "there is no NVIDIA driver",
        "capabilities": {},
        "cgroup_plugin": CGROUP_V2,
        "cgroup_mountpoint": "",
        "cgroup_reason": "",
    }
    return {**values, **changes}


def plan(tmp_path, nodes=None, *, lenient=False, windows="usual", controller="gpu1", **settings):
    return judge(
        {"partitions": [BATCH], **settings},
        nodes or [node()],
        members=MEMBERS,
        windows=windows,
        controller=controller,
        lenient=lenient,
        root=tmp_path,
    )


def test_a_machine_is_divided_so_that_all_cards_can_be_used_at_once(tmp_path):
    found = plan(tmp_path).plain
    assert found["nodes"] == [
        (
            "NodeName=gpu1 NodeAddr=127.0.0.1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 "
            "RealMemory=489216 Gres=gpu:a100:4"
        )
    ]
    assert (found["cpus_per_card"], found["memory_per_card"]) == (16, 489216 // 4)
    assert found["memory_per_cpu"] == 489216 // 64 // 2
    assert found["enforced"]
    assert not found["shared_cores"]


def test_a_little_more_or_less_memory_after_an_update_changes_nothing(tmp_path):
    lines = {plan(tmp_path, [node(memory=515_100 + step)]).plain["nodes"][0] for step in (-40, 0, 40)}
    assert len(lines) == 1


def test_several_machines_use_their_addresses_and_the_smallest_share(tmp_path):
    found = plan(tmp_path, [node(), node("gpu2", cards=8, memory=128_000)]).plain
    assert [line.split()[1] for line in found["nodes"]] == ["NodeAddr=192.0.2.7"] * 2
    assert found["memory_per_card"] == (128_000 - 6400) // 256 * 256 // 8
    assert found["types"] == {"a100": 12}


def test_more_processors_than_there_are_makes_jobs_share_them(tmp_path):
    found = plan(tmp_path, [node(cpus=2, cores=2, sockets=1)], cpus=8).plain
    assert found["shared_cores"]
    assert "CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8" in found["nodes"][0]


def test_fewer_processors_than_cards_is_said(tmp_path):
    judged = plan(tmp_path, [node(cpus=2, cores=2, sockets=1)])
    assert "gpu1 has 4 cards and 2 CPUs: not all cards can be used at once; set tier_slurm_cpus" in judged.warnings[0]


def test_odd_processors_are_given_flat(tmp_path):
    assert (
        "CPUs=3 Boards=1 SocketsPerBoard=1 CoresPerSocket=3"
        in plan(tmp_path, [node(cpus=3, cores=2, sockets=1, cards=1)]).plain["nodes"][0]
    )


def test_what_the_kernel_cannot_enforce_is_said(tmp_path):
    loose = node(cgroup_plugin=NO_CGROUP, cgroup_reason="cgroup v1 and v2 are mixed")
    judged = plan(tmp_path, [loose])
    assert not judged.plain["enforced"]
    assert judged.warnings[0].startswith("NOT ENFORCED: a job's cards, cores and memory; cgroup v1 and v2 are mixed")


def test_nodes_that_differ_get_what_all_can_enforce():
    v1, v2 = Confinement(CGROUP_V1, "/sys/fs/cgroup"), Confinement(CGROUP_V2)
    assert weakest([v2, v2]) == v2
    assert weakest([v1, v1]) == v1
    assert weakest([v1, v2]).plugin == NO_CGROUP
    assert weakest([v2, Confinement(NO_CGROUP, reason="why")]).reason == "why"


REFUSED = {
    "tier_slurm_partitions is 'batch'; give a list": {"partitions": "batch"},
    r"tier_slurm_partitions is \[\]; give a list": {"partitions": []},
    r"tier_slurm_partitions\[0\]: the key 'max_hour' is unknown; did you mean max_hours": {
        "partitions": [{**BATCH, "max_hour": 3}]
    },
    r"tier_slurm_partitions\[1\].name is 'Night'; give a lower-case word": {"partitions": [BATCH, {"name": "Night"}]},
    r"tier_slurm_partitions\[1\].name is 'default'": {"partitions": [BATCH, {"name": "default"}]},
    "batch is there twice; remove one": {"partitions": [BATCH, {"name": "batch"}]},
    r"0 partitions have `default: true` \(none\)": {"partitions": [{"name": "batch"}]},
    r"2 partitions have `default: true` \(batch, b\)": {"partitions": [BATCH, {"name": "b", "default": True}]},
    "default_hours is 50, above max_hours 48; lower it": {"partitions": [{**BATCH, "default_hours": 50}]},
    "max_hours is 0; give a number from": {"partitions": [{**BATCH, "max_hours": 0}]},
    "tier is 0; give a whole number from 1": {"partitions": [{**BATCH, "tier": 0}]},
    "preemptible is 'yes'; give true or false": {"partitions": [{**BATCH, "preemptible": "yes"}]},
    "node 'gpu9' is not there; the nodes are gpu1": {"partitions": [{**BATCH, "nodes": ["gpu9"]}]},
    r"groups is \['a b'\]; give a list of names": {"partitions": [{**BATCH, "groups": ["a b"]}]},
    "tier_slurm_limits: the key 'card' is unknown; did you mean cards": {"limits": {"card": 3}},
    "tier_slurm_limits.cards is -1; give a whole number": {"limits": {"cards": -1}},
    "tier_slurm_limits.jobs is True": {"limits": {"jobs": True}},
    "tier_slurm_member_limits names bbo, who is not in lab_members; did you mean bob": {"member_limits": {"bbo": {}}},
    "tier_slurm_member_limits names carol": {"member_limits": {"carol": {}}},
    "tier_slurm_account_shares names vison, .*; did you mean vision": {"account_shares": {"vison": 2}},
    "tier_slurm_account_shares.vision is 0": {"account_shares": {"vision": 0}},
    "tier_slurm_weights: the key 'fairshar' is unknown; did you mean fairshare": {"weights": {"fairshar": 1}},
    "tier_slurm_memory_per_card is 200000, and gpu1 has 489216 MiB of RAM for 4 cards; give at most 122304": {
        "memory_per_card": 200_000
    },
    "tier_slurm_cpus_per_card is 17, and gpu1 has 64 CPUs for 4 cards; give at most 16": {"cpus_per_card": 17},
    "tier_slurm_memory_per_cpu is 9000, and gpu1 has 489216 MiB for 64 CPUs; give at most 7644": {
        "memory_per_cpu": 9000
    },
    "tier_slurm_reserved_memory is 600000, and gpu1 has 515000 MiB": {"reserved_memory": 600_000},
    "tier_slurm_cpus is -2; give a whole number": {"cpus": -2},
    "tier_slurm_cluster is 'Our Lab'; give a lower-case word": {"cluster": "Our Lab"},
    "tier_slurm_settings: 'Sched Type' is not a parameter": {"settings": {"Sched Type": 1}},
    "tier_slurm_settings.Prolog is .*; give one line": {"settings": {"Prolog": "a\nb"}},
    "the controller calls itself 'GPU_1'": {"controller": "GPU_1"},
    "gpu_windows: .* overlap": {
        "windows": [
            {"name": "a", "from": "08:00", "to": "12:00", "class": "long"},
            {"name": "b", "from": "11:00", "to": "13:00", "class": "short"},
        ]
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_work_is_refused_with_name_value_and_remedy(tmp_path, message):
    with pytest.raises(InputError, match=message) as refused:
        plan(tmp_path, **REFUSED[message])
    assert "\n" not in str(refused.value)


def test_a_node_without_cards_is_refused_but_not_while_planning_a_new_server(tmp_path):
    bare = node(cards=0)
    with pytest.raises(InputError, match=r"gpu1 has no card .*there is no NVIDIA driver.* group slurm_compute"):
        plan(tmp_path, [bare])
    judged = plan(tmp_path, [bare], lenient=True)
    assert judged.plain["gres"] == []
    assert "gpu1 shows no card yet" in " ".join(judged.warnings)


def test_a_renamed_host_or_cluster_is_refused(tmp_path):
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("ClusterName=lab\nSlurmctldHost=gpu1(127.0.0.1)\n")
    (tmp_path / "var/lib/slurm/slurmctld").mkdir(parents=True)
    (tmp_path / "var/lib/slurm/slurmctld/clustername").write_text("lab|2351\n")
    assert plan(tmp_path).plain["nodes"]
    with pytest.raises(InputError, match="was called gpu1 when Slurm was set up and is called gpu2 now"):
        plan(tmp_path, controller="gpu2")
    with pytest.raises(InputError, match=r"keep tier_slurm_cluster: lab$"):
        plan(tmp_path, cluster="other")


def test_numbers_from_the_command_line_are_numbers(tmp_path):
    assert plan(tmp_path, cpus_per_card="4").plain["cpus_per_card"] == 4
