"""Members as users of Slurm: what differs becomes commands, and nothing else does."""

from __future__ import annotations

import re

import pytest
from gpulab.adapters.slurm import SlurmError, read_tree
from gpulab.rules.members import parse_members
from gpulab.rules.slurm_accounts import OWNER, Limits, compare, wish
from gpulab.services.slurm_accounts import World, reconcile

CLASSES = ("long", "short", "offline")
FOUR = Limits(cards=4)


class Slurm:
    """slurmdbd, as far as sacctmgr tells of it: understands the commands that are given and answers what is read."""

    def __init__(self):
        self.qos = {"normal": 0}
        self.accounts = {"root": ("root account", 1, "normal", "")}
        self.users = {}  # (user, account) -> settings
        self.default = {"root": "root"}
        self.level = {"root": "Administrator"}
        self.jobs = []
        self.said = []
        self.deaf = False

    def __call__(self, argv, *, feed="", **_):
        if self.deaf:
            raise SlurmError("sacctmgr did not answer within 60 s")
        if argv[0] == "squeue":
            return "".join(f"{user}|{account}\n" if "|" in argv[-1] else f"{user}\n" for user, account in self.jobs)
        if argv[0] == "scancel":
            name = argv[1].partition("=")[2]
            self.jobs = [job for job in self.jobs if job[0] != name]
            return ""
        if "show" in argv:
            return self.show(argv[argv.index("show") + 1])
        for line in feed.splitlines():
            self.said.append(line)
            self.obey(line)
        return ""

    def show(self, what):
        if what == "user":
            rows = [(user, account, self.level.get(user, "None")) for user, account in self.default.items()]
        elif what == "account":
            rows = [(account, values[0]) for account, values in self.accounts.items()]
        elif what == "qos":
            rows = [(name, str(priority)) for name, priority in self.qos.items()]
        else:
            rows = [(account, "", str(v[1]), "", "", "", v[2], v[3]) for account, v in self.accounts.items()]
            for (user, account), has in self.users.items():
                cards = f"gres/gpu={has['GrpTRES']}" if has.get("GrpTRES", "-1") != "-1" else ""
                jobs, submitted = (has.get(key, "-1").replace("-1", "") for key in ("MaxJobs", "MaxSubmitJobs"))
                rows.append((account, user, has.get("Fairshare", "1"), cards, jobs, submitted, "normal", ""))
        return "".join("|".join(row) + "\n" for row in rows)

    def obey(self, line):
        values = dict(re.findall(r"(\w+)=(?:gres/gpu=)?(\S+)", line))
        verb, kind = line.split()[:2]
        names = (values.get("name") or line.split()[2]).split(",")
        for name in names:
            if kind == "qos":
                self.qos[name] = int(values["Priority"])
            elif kind == "account" and verb == "add":
                self.accounts[name] = (values["Organization"], int(values["Fairshare"]), "normal", "")
            elif kind == "account":
                old = self.accounts[name]
                qos, default = values.get("QOS", old[2]), values.get("DefaultQOS", old[3])
                self.accounts[name] = (old[0], int(values.get("Fairshare", old[1])), qos, default)
            elif verb == "add":
                self.users[name, values["account"]] = values
                self.default.setdefault(name, values["account"])
            elif verb == "delete":
                gone = [key for key in self.users if key[0] == name and values.get("account", key[1]) == key[1]]
                for key in gone:
                    del self.users[key]
            elif "AdminLevel" in values:
                self.level[name] = values["AdminLevel"]
            elif "DefaultAccount" in values:
                self.default[name] = values["DefaultAccount"]
            else:
                self.users[name, values["account"]].update(values)


def wanted(*members, limits=FOUR, **changes):
    listed = [{"name": "alice", "admin": True, "groups": ["vision"]}, {"name": "bob"}, *members]
    options = {"fallback": "members", "member_limits": {}, "shares": {}, "classes": CLASSES, **changes}
    return wish(parse_members(listed), cluster="lab", limits=limits, **options)


@pytest.fixture
def slurm():
    found = Slurm()
    outcome = reconcile(wanted(), World(run=found), dry_run=False)
    assert outcome.errors == []
    found.said.clear()
    return found


def run(slurm, asked, *, dry_run=False):
    return reconcile(asked, World(run=slurm, sleep=lambda _: None), dry_run=dry_run)


def test_everybody_gets_an_account_limits_and_the_classes(slurm):
    tree = read_tree("lab", slurm)
    users = {(each.user, each.account): each.limits for each in tree.associations if each.user}
    assert users == {("alice", "vision"): Limits(cards=4), ("bob", "members"): Limits(cards=4)}
    assert tree.default_accounts["alice"] == "vision"
    assert tree.administrators == {"root", "alice"}
    assert slurm.accounts["vision"][0] == OWNER
    assert slurm.accounts["root"][2] == "long,normal,offline,short"
    assert slurm.qos == {"normal": 500, "long": 500, "short": 500, "offline": 500, "scale": 1000}


def test_a_second_run_says_nothing(slurm):
    outcome = run(slurm, wanted())
    assert (outcome.changed, slurm.said) == (False, [])


def test_a_thousand_members_are_a_handful_of_commands(slurm):
    many = [{"name": f"member{number:04}", "groups": [f"group{number % 5}"]} for number in range(1000)]
    outcome = run(slurm, wanted(*many))
    assert outcome.errors == []
    assert len(slurm.said) <= 20
    assert len(slurm.users) == 1002
    slurm.said.clear()
    assert not run(slurm, wanted(*many)).changed


def test_only_what_differs_is_written(slurm):
    run(slurm, wanted(member_limits={"bob": Limits(cards=2, jobs=3, shares=5)}))
    assert slurm.said == [
        "modify user where name=bob account=members cluster=lab set Fairshare=5 GrpTRES=gres/gpu=2 MaxJobs=3"
    ]
    slurm.said.clear()
    run(slurm, wanted(limits=Limits()))
    assert slurm.said == [
        "modify user where name=alice account=vision cluster=lab set GrpTRES=gres/gpu=-1",
        "modify user where name=bob account=members cluster=lab set Fairshare=1 GrpTRES=gres/gpu=-1 MaxJobs=-1",
    ]


def test_a_dry_run_tells_and_writes_nothing(slurm):
    outcome = run(slurm, wanted({"name": "carol"}), dry_run=True)
    assert outcome.actions == {"carol": ["join account members cards 4"]}
    assert outcome.differences == [("carol", "", "account=members shares=1 cards=4 jobs=- submitted=- default\n")]
    assert slurm.said == []


def test_whoever_leaves_loses_jobs_and_associations(slurm):
    run(slurm, wanted({"name": "carol"}))
    slurm.jobs = [("carol", "members"), ("bob", "members")]
    outcome = run(slurm, wanted({"name": "carol", "state": "absent"}))
    assert outcome.actions == {"carol": ["cancel all jobs", "leave Slurm; history stays"]}
    assert outcome.errors == []
    assert slurm.jobs == [("bob", "members")]
    assert ("carol", "members") not in slurm.users


def test_jobs_that_do_not_end_are_an_error_and_nobody_waits_for_ever(slurm):
    run(slurm, wanted({"name": "carol"}))
    slurm.jobs = [("carol", "members")]
    clock = iter(range(0, 100000, 50))
    stubborn = World(
        run=lambda argv, **more: "" if argv[0] == "scancel" else slurm(argv, **more),
        sleep=lambda _: None,
        monotonic=lambda: next(clock),
    )
    slurm.obey = lambda _: None  # Slurm keeps a user who has jobs
    outcome = reconcile(wanted({"name": "carol", "state": "absent"}), stubborn, dry_run=False)
    assert outcome.errors[0] == "carol: jobs did not end within 90 s; run this again"


def test_whoever_changes_groups_moves_when_the_old_jobs_are_done(slurm):
    run(slurm, wanted({"name": "carol", "groups": ["vision"]}))
    slurm.jobs = [("carol", "vision")]
    slurm.said.clear()
    moved = wanted({"name": "carol", "groups": ["speech"]})
    outcome = run(slurm, moved)
    assert outcome.errors == []
    assert slurm.default["carol"] == "speech"
    assert slurm.users["carol", "vision"]["MaxSubmitJobs"] == "0"
    assert "carol still has jobs in account vision" in outcome.warnings[0]
    slurm.said.clear()
    assert not run(slurm, moved).changed
    slurm.jobs = []
    run(slurm, moved)
    assert [key for key in slurm.users if key[0] == "carol"] == [("carol", "speech")]


def test_what_others_made_is_left_alone(slurm):
    slurm.accounts["project"] = ("faculty", 7, "normal", "")
    slurm.users["bob", "project"] = {"Fairshare": "9"}
    slurm.users["dan", "members"] = {}
    outcome = run(slurm, wanted())
    assert not outcome.changed
    assert "dan" in outcome.warnings[0]
    assert "left alone" in outcome.warnings[0]


def test_an_admin_who_is_one_no_longer_loses_the_right(slurm):
    members = parse_members([{"name": "alice", "groups": ["vision"]}, {"name": "bob", "admin": True}])
    asked = wish(
        members,
        cluster="lab",
        fallback="members",
        limits=Limits(cards=4),
        member_limits={},
        shares={},
        classes=CLASSES,
    )
    run(slurm, asked)
    assert (slurm.level["alice"], slurm.level["bob"], slurm.level["root"]) == ("None", "Administrator", "Administrator")


def test_what_sacctmgr_did_not_do_is_said(slurm):
    slurm.obey = lambda _: None
    outcome = run(slurm, wanted({"name": "carol"}))
    assert outcome.errors == ["carol: still to do: join account members cards 4"]


def test_a_deaf_database_is_one_sentence(slurm):
    slurm.deaf = True
    with pytest.raises(SlurmError, match="did not answer"):
        run(slurm, wanted())


def test_an_interrupted_run_is_made_good(slurm):
    asked = wanted({"name": "carol", "groups": ["speech"]}, {"name": "dan"})
    steps = compare(asked, read_tree("lab", slurm)).steps
    for number in range(len(steps)):
        half = Slurm()
        reconcile(wanted(), World(run=half), dry_run=False)
        for step in steps[:number]:
            half.obey(step.command)
        outcome = reconcile(asked, World(run=half), dry_run=False)
        assert outcome.errors == []
        assert set(half.users) == {("alice", "vision"), ("bob", "members"), ("carol", "speech"), ("dan", "members")}
