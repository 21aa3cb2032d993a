"""Figures of small workloads: really run under scx_baton, or simulated. See scripts/realism.

Each half prints lines `workload<TAB>quantity<TAB>value`; `table` puts two such files together.
"""

import collections
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
CPUS = 8
HOGS = 16
APART_EVERY_S = 0.2


def put(workload, quantity, value):
    print(f"{workload}\t{quantity}\t{value:.4g}", flush=True)


# ---- really


class Baton:
    """The running scheduler, by its command-line tool."""

    def __init__(self, lab):
        self.lab = lab

    def set(self, change):
        subprocess.run([self.lab, "set", change], check=True, stdout=subprocess.DEVNULL)

    def moves(self):
        """Tasks moved so far, under the present settings: by passes, pushes and pull plans."""
        status = json.loads(subprocess.check_output([self.lab, "status", "--json"]))
        passes = (level[kind] for level in status["counters"]["levels"] for kind in ("busy", "idle", "newidle"))
        return status["tasks"]["pulled"] + sum(p["lb_gained"] + p["alb_pushed"] for p in passes)


def burn(seconds):
    """Uses so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def child(work):
    """Runs `work` in a process of its own; its pid."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


def stop(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def fields(pid):
    """What follows the name in /proc/PID/stat."""
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(") ", 1)[1].split()


def cpu_of(pid):
    return int(fields(pid)[36])


def node_of():
    nodes = {}
    for name in os.listdir("/sys/devices/system/node"):
        if name.startswith("node"):
            with open(f"/sys/devices/system/node/{name}/cpulist") as f:
                for part in f.read().strip().split(","):
                    first, _, last = part.partition("-")
                    nodes.update((cpu, name) for cpu in range(int(first), int(last or first) + 1))
    return nodes


def guest_pipes(baton):
    def seconds():
        out = subprocess.check_output(["hackbench", "-p", "-g", "2", "-l", "100"], text=True)
        return float(re.search(r"Time: ([0-9.]+)", out)[1])

    seconds()
    took = {"plan": [], "off": []}
    for order in (("plan", "off"), ("off", "plan")) * 3:
        for value in order:
            baton.set(f"newidle={value}")
            took[value].append(seconds())
    baton.set("newidle=plan")
    ratio = statistics.median(took["off"]) / statistics.median(took["plan"])
    put("pipes", "throughput, newidle plan : off", ratio)


def guest_hogs(_baton):
    online = os.sched_getaffinity(0)
    nodes = node_of()
    node0 = {cpu for cpu in online if nodes[cpu] == nodes[min(online)]}
    os.sched_setaffinity(0, node0)
    pids = [child(lambda: burn(1e9)) for _ in range(HOGS)]
    os.sched_setaffinity(0, online)
    time.sleep(1)
    start = time.monotonic()
    for pid in pids:
        os.sched_setaffinity(pid, online)
    used = set()
    while used != online and time.monotonic() < start + 10:
        used |= {cpu_of(pid) for pid in pids}
        time.sleep(0.005)
    put("hogs", "ms until every CPU has one", (time.monotonic() - start) * 1000)
    time.sleep(1)
    ticks = lambda pid: sum(map(int, fields(pid)[11:13]))
    before = {pid: ticks(pid) for pid in pids}
    time.sleep(5)
    share = [ticks(pid) - before[pid] for pid in pids]
    stop(pids)
    put("hogs", "share of CPU time, least : most", min(share) / max(share))


def counted(baton, workload, nr, one, seconds, unit):
    """Runs `nr` processes that write a byte for each `unit` done; moves per 1,000 of them."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    pids = [child(lambda: one(write)) for _ in range(nr)]

    def drain():
        try:
            return len(os.read(read, 1 << 16))
        except BlockingIOError:
            return 0

    time.sleep(1)
    drain()
    done, before, end = 0, baton.moves(), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.2)
        done += drain()
    moved = baton.moves() - before
    stop(pids)
    put(workload, f"balance moves per 1,000 {unit}", moved * 1000 / max(done, 1))


def guest_sparse(baton):
    def idler(out):
        while True:
            time.sleep(0.01)
            burn(0.0005)
            os.write(out, b".")

    counted(baton, "sparse", 16, idler, 5, "wake-ups")


def guest_reply(baton):
    def client(out):
        there, back = os.pipe(), os.pipe()

        def server():
            while os.read(there[0], 1):
                burn(0.001)
                os.write(back[1], b".")

        if os.fork() == 0:
            # So that it ends with its client.
            os.close(there[1])
            server()
            os._exit(0)
        while True:
            time.sleep(0.004)
            os.write(there[1], b".")
            os.read(back[0], 1)
            os.write(out, b".")

    counted(baton, "reply", 12, client, 5, "requests")


def guest_pair(baton):
    nodes = node_of()
    for rule in ("corrected", "kernel"):
        baton.set(f"numa-imbalance={rule}")
        there, back = os.pipe(), os.pipe()

        def one(read, write):
            while os.read(read, 1):
                os.write(write, b".")

        pids = [child(lambda: one(there[0], back[1])), child(lambda: one(back[0], there[1]))]
        os.write(there[1], b".")
        time.sleep(1)
        apart = 0
        for _ in range(30):
            time.sleep(APART_EVERY_S)
            apart += len({nodes[cpu_of(pid)] for pid in pids}) > 1
        stop(pids)
        put("pair", f"on two nodes, {rule} (% of looks)", apart * 100 / 30)
    baton.set("numa-imbalance=corrected")


def guest_storm(baton):
    work, jobs, total = 0.03, 12, 200
    running, started = 0, 0
    before, start = baton.moves(), time.monotonic()
    used = sum(os.times()[2:4])
    while started < total or running:
        if started < total and running < jobs:
            child(lambda: burn(work))
            started, running = started + 1, running + 1
        else:
            os.wait()
            running -= 1
    elapsed = time.monotonic() - start
    used = sum(os.times()[2:4]) - used
    moved = baton.moves() - before
    put("storm", "CPUs in use (% of all)", used * 100 / elapsed / CPUS)
    put("storm", "balance moves per child", moved / total)


# ---- simulated


class Run:
    """One simulated run: its report and which task was where when."""

    def __init__(self, baton, scenario, *change):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace")
            command = [baton, "sim", os.path.join(FOLDER, f"{scenario}.toml"), "--executors", "llc"]
            command += ["--json", "--trace", trace] + [a for c in change for a in ("--set", c)]
            self.report = json.loads(subprocess.check_output(command))
            with open(trace) as f:
                events = json.load(f)["traceEvents"]
        self.slices = [e for e in events if e["ph"] == "X"]
        self.moves = sum(self.report["totals"]["moves"])

    def cpus_at(self, us):
        """Where each task ran last, by pid."""
        return {e["args"]["pid"]: e["tid"] for e in self.slices if e["ts"] <= us}


def sim_pipes(baton):
    done = [Run(baton, "pipes", f"newidle={v}").report["done_per_s"] for v in ("plan", "off")]
    put("pipes", "throughput, newidle plan : off", done[0] / done[1])


def sim_hogs(baton):
    run = Run(baton, "hogs")
    first = {}
    for e in run.slices:
        first.setdefault(e["tid"], e["ts"])
    every = max(first.values()) if len(first) == CPUS else float("nan")
    put("hogs", "ms until every CPU has one", every / 1000)
    share = collections.Counter()
    for e in run.slices:
        # As really: a second later, for five.
        from_us, to_us = every + 1e6, every + 6e6
        share[e["args"]["pid"]] += max(0, min(e["ts"] + e["dur"], to_us) - max(e["ts"], from_us))
    put("hogs", "share of CPU time, least : most", min(share.values()) / max(share.values()))


def sim_sparse(baton):
    run = Run(baton, "sparse")
    put("sparse", "balance moves per 1,000 wake-ups", run.moves * 1000 / run.report["totals"]["wakeups"])


def sim_reply(baton):
    run = Run(baton, "reply")
    put("reply", "balance moves per 1,000 requests", run.moves * 1000 / sum(run.report["totals"]["done"]))


def sim_pair(baton):
    for rule in ("corrected", "kernel"):
        run = Run(baton, "pair", f"numa-imbalance={rule}")
        looks = [run.cpus_at((1 + APART_EVERY_S * i) * 1e6) for i in range(1, 31)]
        apart = sum(len({cpu // (CPUS // 2) for cpu in look.values()}) > 1 for look in looks)
        put("pair", f"on two nodes, {rule} (% of looks)", apart * 100 / len(looks))


def sim_storm(baton):
    run = Run(baton, "storm")
    put("storm", "CPUs in use (% of all)", 100 - run.report["idle_pct"])
    put("storm", "balance moves per child", run.moves / max(sum(run.report["totals"]["ended"]), 1))


# ---- both


def table(guest, sim):
    def read(path):
        with open(path) as f:
            rows = [line.rstrip("\n").split("\t") for line in f if line.count("\t") == 2]
        return {(w, q): float(v) for w, q, v in rows}

    real, simulated = read(guest), read(sim)
    keys = list(dict.fromkeys([*real, *simulated]))
    width = max(len(q) for _, q in keys)
    print(f"{'':8} {'':{width}} {'VM':>10} {'simulator':>10} {'difference':>11}")
    for key in keys:
        values = [t.get(key, float("nan")) for t in (real, simulated)]
        print(f"{key[0]:8} {key[1]:{width}} {values[0]:10.4g} {values[1]:10.4g} {values[1] - values[0]:+11.3g}")
    if set(real) != set(simulated):
        sys.exit("error: a figure is missing; see the run's output above")


WORKLOADS = ("pipes", "hogs", "sparse", "reply", "pair", "storm")

if __name__ == "__main__":
    half, *rest = sys.argv[1:]
    if half == "table":
        table(*rest)
    else:
        subject = Baton(rest[0]) if half == "guest" else rest[0]
        for workload in WORKLOADS:
            globals()[f"{half}_{workload}"](subject)
