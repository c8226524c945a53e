"""The faults of scripts/failover/rounds.py: what happens to the machines of a job, and how its servers must end."""

import os
import random
import signal
import time

from net import run

# Bytes of the disk of a scheduler, and of a server whose disk is to be full.
DISK_BYTES = 1 << 20
SERVER_DISK_BYTES = 64 << 20
# A third of the rows of such a round takes about 2.5 MB. Without rows its images take half a megabyte.
MEMORY_LIMIT = 1_000_000
# How long a server that has lost its place may take to end, once it can know it.
END_SECONDS = 20


class Faults:
    """What happens in a round. The seed draws it."""

    def __init__(self, of):
        self.round, self.machines = of, of.machines
        self.dice = random.Random(f"faults {of.plan['seed']}")
        self.disk = of.folder / "disk"
        # What has happened, as text, with the seconds since the first worker pushed.
        self.told = []
        self.begun = time.monotonic()
        # Why the stall of this round is counted apart.
        self.is_apart = None
        # Servers that were killed for good, and those that may have lost a place.
        self.dead, self.lost = set(), set()
        self.never_mended = False
        # The server whose disk is to be full.
        self.full = of.plan["seed"] % 3 if isinstance(of.plan["seed"], int) else 0

    def tell(self, text):
        self.told.append(f"{time.monotonic() - self.begun:.1f} s: {text}")

    def make_disk(self):
        self.disk.mkdir()
        run(f"mount -t tmpfs -o size={DISK_BYTES} failover {self.disk}")

    def remove_disks(self):
        for disk in (self.disk, self.round.folder / "full"):
            if disk.is_mount():
                run(f"umount --lazy {disk}")

    def folder(self, index):
        """The flags of a server that has a folder."""
        fault = self.round.plan["fault"]
        if fault not in ("power", "full"):
            return []
        folder = self.round.folder / f"folder{index}"
        if fault == "full" and index == self.full:
            folder = self.round.folder / "full"
            if not folder.is_mount():
                folder.mkdir()
                run(f"mount -t tmpfs -o size={SERVER_DISK_BYTES} failover {folder}")
        return ["--data-dir", str(folder)]

    def before(self):
        """What happens before the workers start."""
        if self.round.plan["fault"] == "memory":
            self.limit_memory()

    def happen(self):
        """The fault, in the middle of the training."""
        self.begun, self.epochs = time.monotonic(), self.epochs_now()
        fault = self.round.plan["fault"]
        if fault is None:
            return
        self.pause(self.dice.uniform(0.3, 1.5))
        self.must_train()
        faults = {"two": self.two, "leader": self.leader, "disk": self.fill_disk, "memory": self.overflow,
                  "power": self.kill_all, "full": self.fill_disk_of_server}
        faults.get(fault, lambda: self.one(fault))()

    def epochs_now(self):
        return [place.get("epoch") for place in self.round.job.places()]

    def must_train(self):
        """The fault would come too late."""
        ended = [name for name in ("worker0", "worker1") if not self.round.job.is_alive(name)]
        if ended:
            raise RuntimeError(f"{', '.join(ended)} had ended before the fault")

    def pause(self, seconds):
        """Waits, at most until both workers have ended."""
        end = time.monotonic() + seconds
        job = self.round.job
        while time.monotonic() < end and any(job.is_alive(f"worker{index}") for index in range(job.workers)):
            time.sleep(0.02)

    def servers(self):
        return range(len(self.round.job.hosts))

    def victims(self):
        """Servers that may die: each owns a place, and a backup that lives has all rows of each of its places."""
        job = self.round.job
        alive = {job.hosts[index] for index in self.servers() if job.is_alive(f"ps{index}")}
        places = job.places()
        if len(places) < len(job.hosts) or any(place.get("state") != "serves" for place in places):
            return []
        is_safe = lambda host: all(
            alive & (set(place["backups"]) - {host}) for place in places if place["owner"] == host
        )
        owners = {place["owner"] for place in places} & alive
        return [index for index in self.servers() if job.hosts[index] in owners and is_safe(job.hosts[index])]

    def one(self, kind):
        """A fault of one server. Returns the server."""
        victims = self.victims()
        if not victims:
            raise RuntimeError(f"no server may die: {self.round.job.places()}")
        victim = self.dice.choice(victims)
        {"kill": self.kill, "sleep": self.sleep, "cut": self.cut}[kind](victim)
        return victim

    def kill(self, victim):
        self.round.job.process(f"ps{victim}").send_signal(signal.SIGKILL)
        self.round.job.process(f"ps{victim}").wait()
        self.dead.add(victim)
        self.tell(f"ps{victim} is killed")

    def sleep(self, victim):
        process, seconds = self.round.job.process(f"ps{victim}"), self.dice.uniform(3, 7)
        process.send_signal(signal.SIGSTOP)
        self.tell(f"ps{victim} sleeps for {seconds:.1f} s")
        try:
            self.pause(seconds)
        finally:
            process.send_signal(signal.SIGCONT)
        self.lost.add(victim)
        self.tell(f"ps{victim} is awake")

    def cut(self, victim):
        """Drops what passes a server's links in one direction or both."""
        own = f"ps{victim}"
        direction = self.dice.choice(["out", "in", "both"])
        to = self.dice.choice(["all", "all", "coordinator", "server", "worker"])
        coordinator = [name for name in self.machines.names if name.startswith(("coordinator", "etcd"))]
        others = {
            "all": [None],
            "coordinator": coordinator,
            "server": [f"ps{self.dice.choice([index for index in self.servers() if index != victim])}"],
            "worker": [f"worker{self.dice.randrange(2)}"],
        }[to]
        seconds = self.dice.uniform(1, 3) if to == "worker" else self.dice.uniform(3, 8)
        self.never_mended = to == "all" and self.dice.random() < 0.3
        for other in others:
            if direction != "in":
                self.machines.cut(own, other)
            if direction != "out":
                self.machines.cut(other, own)
        what = {"out": "what it sends", "in": "what it should get", "both": "everything"}[direction]
        of = {"all": "all"}.get(to) or ", ".join(others)
        if to == "worker":
            # Nothing but the cut itself is wrong with the server, so no other one takes its place.
            self.is_apart = "the link of a worker: as long as the cut"
        self.lost.add(victim)
        if self.never_mended:
            return self.tell(f"{own} loses {what} ({of}) until the end")
        self.tell(f"{own} loses {what} ({of}) for {seconds:.1f} s")
        self.pause(seconds)
        self.machines.mend()
        self.tell("the links are whole")

    def two(self):
        """Two faults of one server each, with time to recover between them."""
        first = self.one(self.dice.choice(["kill", "sleep", "cut"]))
        job = self.round.job
        if self.never_mended:
            self.pause(5)
            self.machines.mend()
        is_again = self.dice.random() < 0.5
        if first not in self.dead and not self.owns(first):
            job.until(f"end of ps{first}, which lost its place", lambda: not job.is_alive(f"ps{first}"), END_SECONDS)
        if is_again and not job.is_alive(f"ps{first}"):
            self.must_have_ended(first)
            job.start_server(first)
            self.dead.discard(first)
            self.lost.discard(first)
            self.tell(f"ps{first} is started again")
        job.until("server that may die next", self.victims, 30)
        self.must_train()
        self.one(self.dice.choice(["kill", "sleep", "cut"]))

    def leader(self):
        """The leader of etcd dies, and perhaps a server soon after."""
        self.is_apart = "the leader of etcd dies"
        leader = self.round.etcd.leader()
        self.round.etcd.kill(leader)
        self.tell(f"{leader}, the leader of etcd, is killed")
        if self.dice.random() < 0.5:
            self.is_apart = "the leader of etcd dies, then a server"
            victim = self.dice.choice(list(self.servers()))
            self.pause(self.dice.uniform(0, 2))
            self.must_train()
            self.kill(victim)

    def kill_all(self):
        """Nobody lives who has a row. The servers go on with those in their folders."""
        self.is_apart = "all servers die at once"
        job, etcd = self.round.job, self.round.etcd
        names = [f"ps{index}" for index in self.servers()] + ([] if etcd else ["coordinator"])
        for name in names:
            job.process(name).send_signal(signal.SIGKILL)
        for name in names:
            job.process(name).wait()
        self.tell(f"{', '.join(names)} are killed")
        self.pause(self.dice.uniform(0, 3))
        if not etcd:
            job.start_coordinator("--data-dir", str(self.disk))
        again = list(self.servers())
        self.dice.shuffle(again)
        for index in again:
            job.start_server(index, *self.folder(index))
        self.tell("they are started again")

    def fill(self, disk):
        """Fills a disk. Returns the file that does."""
        filler = disk / "filler"
        with open(filler, "wb", buffering=0) as out:
            try:
                while True:
                    out.write(b"0" * 4096)
            except OSError:
                return filler

    def fill_disk_of_server(self):
        """A server cannot make rows for a while."""
        self.is_apart = "the disk of a server is full"
        filler = self.fill(self.round.folder / "full")
        self.tell(f"the disk of ps{self.full} is full")
        self.pause(self.dice.uniform(3, 5))
        os.remove(filler)
        self.tell("the disk has space")

    def fill_disk(self):
        """The scheduler cannot write for a while."""
        filler = self.fill(self.disk)
        self.tell("the disk of the scheduler is full")
        kills = self.dice.random() < 0.5
        if kills:
            self.is_apart = "a server dies while the disk is full"
            self.must_train()
            self.kill(self.dice.choice(list(self.servers())))
        self.pause(self.dice.uniform(3, 5))
        epochs = self.epochs_now()
        os.remove(filler)
        self.tell("the disk has space")
        if epochs != self.epochs:
            raise RuntimeError(f"owners that the scheduler could not write down: epochs {self.epochs}, {epochs}")

    def limit_memory(self):
        """A server is started again with a limit that holds the copies of no whole table."""
        job = self.round.job
        self.limited = self.dice.choice(list(self.servers()))
        self.kill(self.limited)
        job.until(f"other owner than ps{self.limited}", lambda: job.places() and not self.owns(self.limited), 30)
        job.start_server(self.limited, "--memory-limit", str(MEMORY_LIMIT))
        # Its owner may not have noticed yet that the backup before has died: nothing is sent to it.
        time.sleep(3)
        self.dead.discard(self.limited)
        job.until("backup with a limit", self.is_limited_in_set, 30)
        self.tell(f"ps{self.limited} is a backup, with {MEMORY_LIMIT} bytes")

    def is_limited_in_set(self):
        job = self.round.job
        return any(job.hosts[self.limited] in place.get("backups", []) for place in job.places())

    def overflow(self):
        """The first pass makes rows. The backup with the limit must leave."""
        self.round.job.until("place without the full backup", lambda: not self.is_limited_in_set(), 30)
        self.tell(f"ps{self.limited} is in no set of backups")

    def owns(self, index):
        job = self.round.job
        return any(place.get("owner") == job.hosts[index] for place in job.places())

    def end(self):
        """The training has ended. Whatever is broken is mended."""
        self.machines.mend()
        if not self.is_apart and self.epochs_now() == self.epochs:
            self.is_apart = "no place changes its owner"

    def must_have_ended(self, index):
        code = self.round.job.process(f"ps{index}").poll()
        if code != (-signal.SIGKILL if index in self.dead else 1):
            raise RuntimeError(f"ps{index} ended with {code}")

    def problems(self):
        """How the servers ended that should have, and those that should not."""
        job, found = self.round.job, []
        end = time.monotonic() + END_SECONDS
        for index in self.lost - self.dead:
            while not self.owns(index) and job.is_alive(f"ps{index}") and time.monotonic() < end:
                time.sleep(0.2)
        for index in self.servers():
            code = job.process(f"ps{index}").poll()
            if index in self.dead:
                wanted = -signal.SIGKILL
            else:
                wanted = 1 if index in self.lost and not self.owns(index) else None
            if code != wanted:
                found.append(f"ps{index} should have {'ended with ' + str(wanted) if wanted else 'lived'}: {code}")
        if not self.round.etcd and not job.is_alive("coordinator"):
            found.append("the scheduler has ended")
        if self.round.plan["fault"] == "memory" and self.is_limited_in_set():
            found.append(f"ps{self.limited} is still in a set of backups")
        return found
