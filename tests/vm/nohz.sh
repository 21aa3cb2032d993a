# each flag of nohz balancing does to its counters what its documentation says
# Every pass at its time: how often passes are put off is not what is shown here.
start_baton --agent-share 0
hackbench -p -g 2 -l 50 >/dev/null
# CPUs go idle and busy, and tasks wait.
cat >"$WORK/flags.py" <<'END'
import json, os, subprocess, sys, time
lab = sys.argv[1]
def ask(*words):
    return json.loads(subprocess.run([lab, *words, "--json"], check=True, capture_output=True).stdout)
defaults = {k: v for k, v in ask("get")["settings"].items() if k.startswith("nohz") or k == "ilb"}
def under(**changed):
    settings = defaults | {name.replace("_", "-"): value for name, value in changed.items()}
    set_all = [lab, "set"] + [f"{name}={value}" for name, value in settings.items()]
    subprocess.run(set_all, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["hackbench", "-p", "-g", "2", "-l", "120"], check=True, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    c = ask("status")["counters"]
    c["unheard"] = c["nohz_skips"].get("nohz_no_helper", 0)
    print("note:", " ".join(f"{k}={v}" for k, v in changed.items()) or "defaults", "|",
          *(f"{k[5:] if k.startswith('nohz_') else k} {c[k]}" for k in
            ["nohz_checks", "nohz_early_checks", "nohz_line_writes", "nohz_transitions", "nohz_kicks", "ilb_runs", "unheard"]),
          flush=True)
    return c
failures = []
def expect(what, holds):
    if not holds:
        failures.append(what)
c = under()
expect("mask: one write a transition", c["nohz_line_writes"] == c["nohz_transitions"] > 0)
expect("time-first: no look before it is due", c["nohz_early_checks"] == 0 < c["nohz_checks"])
expect("on: somebody helps", c["ilb_runs"] > 0)
returned = c
c = under(nohz_count="counter")
# A CPU that idled when the setting changed was not counted in, and is not counted out.
short = 2 * c["nohz_transitions"] - c["nohz_line_writes"]
expect("counter: two writes a transition", 0 <= short <= os.cpu_count() < c["nohz_transitions"])
c = under(nohz_order="count-first")
expect("count-first: looks before it is due", c["nohz_early_checks"] > 0)
c = under(nohz_empty="out")
expect("out: asks although nobody idles", c["unheard"] > returned["unheard"])
c = under(nohz="off")
expect("off: no kick, no helper", c["nohz_kicks"] == 0 and c["ilb_runs"] == 0)
c = under(nohz_mask="node")
expect("node: one write a transition", c["nohz_line_writes"] == c["nohz_transitions"] > 0)
c = under(ilb="round-robin")
expect("round-robin: somebody helps", c["ilb_runs"] > 0)
if failures:
    sys.exit("; ".join(failures))
END
python3 "$WORK/flags.py" "$LAB" || fail "a flag does not do what it says"
still_attached
stop_baton
