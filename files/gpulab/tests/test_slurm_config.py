"""The controller's files: proved, written, in force, or as before. Daemons restarted when, and only when, needed."""

from __future__ import annotations

import dataclasses

import pytest
from gpulab.adapters.slurm import SlurmError
from gpulab.adapters.systemd import Unit, UnitError
from gpulab.errors import GpulabError
from gpulab.rules.slurm_node_state import parse_node
from gpulab.services import slurm_config, slurm_daemons
from gpulab.services.slurm_config import Request, apply
from gpulab.services.slurm_daemons import World, keep
from gpulab.services.slurm_proof import Proof, UnprovenError, _adapted

FILES = {
    "slurm.conf": "ClusterName=lab\n",
    "nodes.conf": "NodeName=gpu1 CPUs=8 Gres=gpu:a100:4\n",
    "lab.conf": "PartitionName=batch\n",
    "job_submit.lua": "return 0\n",
}
RESTART = frozenset({"slurm.conf"})
ABSENT = Unit("", there=False, active=False, enabled=False, stale=False, pid=0)


class Systemd:
    """Units as systemd would show them; `broken` ones do not start."""

    def __init__(self, *names):
        self.units = {
            f"{name}.service": dataclasses.replace(ABSENT, name=f"{name}.service", there=True) for name in names
        }
        self.acts = []
        self.broken = set()

    def look(self, name):
        return self.units.get(name, dataclasses.replace(ABSENT, name=name))

    def act(self, verb, *names):
        self.acts.append(" ".join((verb, *names)))
        for name in names:
            if name not in self.units:
                continue
            active = self.units[name].active
            if verb in {"start", "restart"}:
                if name in self.broken:
                    raise UnitError(f"systemctl {verb} {name}: failed")
                active = True
            self.units[name] = dataclasses.replace(
                self.units[name], active=active, enabled=self.units[name].enabled or verb == "enable", pid=7
            )

    def last_lines(self, _name):
        return "fatal: something"


class Slurm:
    """Answers of Slurm's commands; `jobs` run on the node."""

    def __init__(self):
        self.jobs = []
        self.asked = []
        self.refuses = set()
        self.node = "NodeName=gpu1 State=IDLE Gres=gpu:a100:4"

    def __call__(self, argv, **_):
        said = " ".join(argv)
        self.asked.append(said)
        if any(said.startswith(each) for each in self.refuses):
            raise SlurmError(f"{said}: refused")
        if argv[0] == "squeue":
            return "".join(f"{job}|{user}\n" for job, user in self.jobs)
        if said.startswith("scontrol ping"):
            return "Slurmctld(primary) at gpu1 is UP\n"
        if said.startswith("ss "):
            return 'LISTEN 0 128 0.0.0.0:6819 0.0.0.0:* users:(("slurmdbd",pid=7,fd=6))\n'
        if "show node" in said:
            return self.node
        return ""


@pytest.fixture
def world(tmp_path, monkeypatch):
    (tmp_path / "etc/slurm").mkdir(parents=True)
    monkeypatch.setattr(slurm_config, "prove", lambda _files, **_: Proof(()))
    clock = iter(range(10_000))
    monkeypatch.setattr(
        slurm_config, "write_atomic", lambda path, data, **_: path.write_bytes(data)
    )  # chown needs root
    return World(
        root=tmp_path,
        systemd=Systemd("munge", "mariadb", "slurmdbd", "slurmctld", "slurmd"),
        run=Slurm(),
        sleep=lambda _: None,
        monotonic=lambda: float(next(clock)),
    )


def request(**changes):
    return Request(files={**FILES, **changes.pop("files", {})}, restart=RESTART, **changes)


def on_disk(world):
    return {path.name: path.read_text() for path in (world.root / "etc/slurm").iterdir()}


def test_the_first_run_registers_the_cluster_and_starts_the_controller(world):
    outcome = apply(request(), world, dry_run=False)
    assert (sorted(outcome.changed), outcome.action) == (sorted(FILES), "started")
    assert on_disk(world) == FILES
    assert "sacctmgr --immediate --quiet add cluster lab" in world.run.asked
    assert "enable slurmctld.service" in world.systemd.acts


def test_jobs_are_counted_on_from_those_in_the_accounts(world):
    note = world.root / "var/lib/gpulab/slurm/first_job"
    note.parent.mkdir(parents=True)
    note.write_text("4712\n")
    apply(request(), world, dry_run=False)
    assert on_disk(world)["slurm.conf"] == FILES["slurm.conf"] + "FirstJobId=4712\n"
    assert apply(request(), world, dry_run=False).action == ""
    note.write_text("many\n")
    with pytest.raises(GpulabError, match="first_job does not hold a number; remove it"):
        apply(request(), world, dry_run=False)


def test_a_second_run_touches_nothing(world):
    apply(request(), world, dry_run=False)
    world.systemd.acts.clear()
    outcome = apply(request(), world, dry_run=False)
    assert (outcome.changed, outcome.action, world.systemd.acts) == ([], "", [])


@pytest.mark.parametrize(
    ("files", "action"),
    [
        ({"lab.conf": "PartitionName=other\n"}, "reconfigured"),
        ({"slurm.conf": "ClusterName=lab\nX=1\n"}, "restarted"),
        ({"job_submit.lua": "return 1\n"}, ""),
        ({"nodes.conf": FILES["nodes.conf"] + "NodeName=gpu2 Gres=gpu:a100:4\n"}, "reconfigured"),
    ],
)
def test_which_file_changed_says_what_is_needed(world, files, action):
    apply(request(), world, dry_run=False)
    told = apply(request(files=files), world, dry_run=True)
    assert told.action == action
    assert on_disk(world) == FILES
    done = apply(request(files=files), world, dry_run=False)
    assert (done.action, done.changed) == (action, list(files))
    assert on_disk(world) == {**FILES, **files}


def test_a_run_killed_between_files_and_reconfiguration_is_made_good(world):
    apply(request(), world, dry_run=False)
    (world.root / "etc/slurm/lab.conf").write_text("PartitionName=other\n")
    outcome = apply(request(files={"lab.conf": "PartitionName=other\n"}), world, dry_run=False)
    assert (outcome.changed, outcome.action) == ([], "reconfigured")


def test_files_that_are_not_proved_are_never_written(world, monkeypatch):
    apply(request(), world, dry_run=False)

    def fails(files, *, user):
        raise UnprovenError("slurmctld would not start: fatal: Parsing error")

    monkeypatch.setattr(slurm_config, "prove", fails)
    world.systemd.acts.clear()
    with pytest.raises(UnprovenError, match="Parsing error"):
        apply(request(files={"slurm.conf": "nonsense\n"}), world, dry_run=False)
    assert on_disk(world) == FILES
    assert world.systemd.acts == []


def test_a_reconfiguration_that_fails_is_taken_back(world):
    apply(request(), world, dry_run=False)
    world.run.refuses = {"scontrol reconfigure"}
    with pytest.raises(GpulabError, match="the new configuration was taken back: scontrol reconfigure"):
        apply(request(files={"lab.conf": "PartitionName=other\n"}), world, dry_run=False)
    assert on_disk(world) == FILES
    assert world.systemd.acts[-3:] == [
        "kill --signal=KILL slurmctld.service",
        "reset-failed slurmctld.service",
        "restart slurmctld.service",
    ]


def test_a_controller_that_does_not_start_says_why(world):
    world.systemd.broken = {"slurmctld.service"}
    with pytest.raises(GpulabError, match=r"taken back: slurmctld is not well: .*; its journal ends with: fatal"):
        apply(request(), world, dry_run=False)
    assert on_disk(world) == {}


LESS = {"nodes.conf": "NodeName=gpu1 CPUs=8 Gres=gpu:a100:3\n"}


def test_cards_never_change_under_a_job(world):
    apply(request(), world, dry_run=False)
    world.run.jobs = [("12", "alice"), ("13", "bob")]
    assert "would kill its jobs: 12 (alice), 13 (bob)" in apply(request(files=LESS), world, dry_run=True).warnings[0]
    with pytest.raises(GpulabError, match=r"the cards of gpu1 change, .*12 \(alice\), 13 \(bob\); wait for their end"):
        apply(request(files=LESS), world, dry_run=False)
    assert on_disk(world) == FILES
    assert world.run.asked[-1] == "scontrol update NodeName=gpu1 State=RESUME"


def test_a_node_never_leaves_under_a_job(world):
    both = FILES | {"nodes.conf": FILES["nodes.conf"] + "NodeName=gpu2 Gres=gpu:l40s:2\n"}
    apply(request(files=both), world, dry_run=False)
    world.run.jobs = [("14", "carol")]
    assert "gpu2 leaves the cluster" in apply(request(), world, dry_run=True).warnings[0]
    with pytest.raises(GpulabError, match=r"^gpu2 leaves the cluster, which would kill its jobs: 14 \(carol\); wait"):
        apply(request(), world, dry_run=False)
    assert on_disk(world) == both
    world.run.jobs = []
    assert apply(request(), world, dry_run=False).action == "restarted"


def test_a_node_that_somebody_drained_stays_so_when_the_change_is_refused(world):
    apply(request(), world, dry_run=False)
    world.run.jobs = [("12", "alice")]
    world.run.node = "NodeName=gpu1 State=MIXED+DRAIN Gres=gpu:a100:4 Reason=smoke [root@2026-12-01T09:00:00]"
    with pytest.raises(GpulabError, match="the cards of gpu1 change"):
        apply(request(files=LESS), world, dry_run=False)
    assert not [each for each in world.run.asked if "scontrol update" in each]


def test_a_run_may_wait_for_the_jobs(world):
    apply(request(), world, dry_run=False)
    world.run.jobs = [("12", "alice")]
    patient = dataclasses.replace(world, sleep=lambda _: world.run.jobs.clear())
    outcome = apply(request(files=LESS, drain_seconds=600), patient, dry_run=False)
    assert (outcome.action, outcome.drained) == ("restarted", ["gpu1"])
    assert on_disk(world)["nodes.conf"] == LESS["nodes.conf"]


def test_the_throw_away_controller_gets_no_accounting():
    text = "AccountingStorageType=x\n  accountingstorageenforce=all\n"
    text += 'PartitionName=b TRESBillingWeights="A=1" Nodes=n\nA=1\n'
    assert list(_adapted(text)) == ["PartitionName=b Nodes=n", "A=1"]


def test_a_daemon_is_started_once_and_restarted_for_its_files(world):
    conf = world.root / "etc/slurm/slurmdbd.conf"
    conf.write_text("a\n")
    files = ["/etc/slurm/slurmdbd.conf"]
    assert keep("slurmdbd", files, world, dry_run=True) == "started"
    assert keep("slurmdbd", files, world) == "started"
    assert keep("slurmdbd", files, world) == ""
    conf.write_text("b\n")
    assert keep("slurmdbd", files, world, dry_run=True) == "restarted"
    assert keep("slurmdbd", files, world) == "restarted"
    assert keep("slurmdbd", files, world) == ""
    assert keep("slurmdbd", files, world, rewritten=True) == "restarted"


def test_a_daemon_that_is_not_there_is_foreseen_while_planning_and_an_error_else(world):
    world.systemd.units.clear()
    assert keep("munge", [], world, dry_run=True) == "started"
    with pytest.raises(UnitError, match=r"munge.service is not installed, or masked"):
        keep("munge", [], world)


def test_a_daemon_that_never_answers_is_given_up(world):
    world.run.refuses = {"mariadb-admin"}
    with pytest.raises(GpulabError, match=r"mariadb is not well: mariadb-admin .*; its journal ends with"):
        keep("mariadb", [], world)


def test_a_node_drained_for_its_cards_takes_jobs_again(world):
    keep("slurmd", [], world)
    world.run.node = f"NodeName=gpu1 State=IDLE+DRAIN Gres=gpu:a100:4 Reason={slurm_daemons.DRAIN_REASON} [root@x]"
    assert keep("slurmd", [], world) == "resumed"
    # In between slurmd may have registered with the old ones: then the controller's own reason stands there.
    world.run.node = "NodeName=gpu1 State=IDLE+DRAIN Gres=gpu:big:4 Reason=gres/gpu:big count too low (0 < 4) [slurm@x]"
    assert keep("slurmd", [], world) == "resumed"
    world.run.node = "NodeName=gpu1 State=IDLE+DRAIN Gres=gpu:a100:4 Reason=fan broken [alice@x]"
    assert keep("slurmd", [], world) == ""


def test_a_node_takes_jobs_or_not_as_the_inventory_says(world):
    keep("slurmd", [], world)
    free = "NodeName=gpu1 State=IDLE Gres=gpu:a100:4"
    closed = "NodeName=gpu1 State=MIXED+DRAIN Gres=gpu:a100:4 Reason={} [root@2026-12-01T09:00:00]"
    table = [
        (free, "", "", ""),
        (free, "new fan", "drained", "State=DRAIN Reason=gpulab: new fan"),
        (closed.format("gpulab: new fan"), "new fan", "", ""),
        (closed.format("gpulab: new fan"), "old disk", "drained", "State=DRAIN Reason=gpulab: old disk"),
        (closed.format("gpulab: new fan"), "", "resumed", "State=RESUME"),
        (closed.format("smoke"), "", "", ""),
        (closed.format("smoke"), "new fan", "", ""),
    ]
    for node, wish, verb, order in table:
        world.run.node = node
        world.run.asked.clear()
        assert keep("slurmd", [], world, drain=wish, dry_run=True) == verb
        assert not [each for each in world.run.asked if "update" in each]
        assert keep("slurmd", [], world, drain=wish) == verb
        assert [each.partition("NodeName=gpu1 ")[2] for each in world.run.asked if "update" in each] == [order] * bool(
            order
        )
    world.run.refuses = {"scontrol"}
    assert keep("slurmd", [], world, drain="new fan", dry_run=True) == "", "the run itself would start the controller"


def test_a_node_that_registered_with_something_missing_is_an_error(world):
    world.run.node = (
        "NodeName=gpu1 State=IDLE+DRAIN+INVALID_REG Gres=gpu:a100:4 "
        "Reason=gres/gpu count reported lower than configured (3 < 4) [slurm@x]"
    )
    with pytest.raises(GpulabError, match=r"node gpu1 registered with something missing: gres/gpu count"):
        keep("slurmd", [], world)


@pytest.mark.parametrize(
    ("state", "answers", "drained"),
    [
        ("IDLE", True, False),
        ("MIXED+DRAIN", True, True),
        ("DOWN*", False, False),
        ("IDLE*", False, False),
        ("UNKNOWN+NOT_RESPONDING", False, False),
        ("IDLE+CLOUD", True, False),
    ],
)
def test_states_of_nodes_are_understood(state, answers, drained):
    found = parse_node(
        f"NodeName=gpu1 Arch=x86_64 State={state} ThreadsPerCore=1 Gres=gpu:a100:2 Reason=a b [x@2026-12-01T09:00:00]\n"
    )
    assert (found.answers, found.drained, found.cards, found.reason) == (answers, drained, {"a100": 2}, "a b")
