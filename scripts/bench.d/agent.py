"""What the agent of a running scx_baton costs: scripts/bench.d/agent.py PID ROUNDS."""
import json
import os
import statistics
import subprocess
import sys
import time

pid, rounds = int(sys.argv[1]), int(sys.argv[2])
TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def status():
    return json.loads(subprocess.check_output(["target/release/baton", "status", "--json"]))


def measure(what):
    """Share of one CPU by the scheduler's clock, and rounds a second."""
    before = sum(w["rounds"] for w in status()["workers"])
    cpu, began = cpu_seconds(), time.monotonic()
    what()
    took = time.monotonic() - began
    share = (cpu_seconds() - cpu) / took
    return share, (sum(w["rounds"] for w in status()["workers"]) - before) / took


share, _ = measure(lambda: time.sleep(20))
print(f"agent on an idle machine: {share:.2%} of one CPU")
hackbench = ["hackbench", "-p", "-g", "4", "-l", "500"]
runs = [measure(lambda: subprocess.run(hackbench, check=True, stdout=subprocess.DEVNULL)) for _ in range(rounds)]
shares, rates = [r[0] for r in runs], [r[1] for r in runs]
medians = [w["round_p50_ns"] / 1e9 for w in status()["workers"] if w["round_p50_ns"]]
rate, median = statistics.median(rates), statistics.mean(medians)
print(
    f"agent under hackbench: {statistics.median(shares):.1%} of one CPU "
    f"({min(shares):.1%} to {max(shares):.1%} in {rounds} runs), {rate:.0f} rounds a second"
)
print(f"half of the rounds take less than {median * 1e3:.2f} ms: {rate * median:.1%} of a CPU that runs all the time\n")
