# 60 s of hackbench, fork storm and hogs: how long CPUs idled while tasks waited; moves stay moved at steady load
need stress-ng
start_baton
# Tasks that never sleep: what is moved stays where it was moved to.
pids=()
for _ in $(seq $(($(nproc) * 3 / 2))); do hog "0-$(($(nproc) - 1))"; pids+=($!); done
sleep 20
moves=$(($(json requests.ended.applied) + $(json tasks.pulled))) undone=$(json counters.moves_undone)
note "steady load: $moves tasks moved, $undone undone within 10 ms"
# Under 1 % is the aim; some runs of an emulated machine are a little above.
[ $((undone * 100)) -le $((moves * 3)) ] || fail "$undone of $moves moves were undone"
stop_hogs "${pids[@]}"
for _ in 1 2; do hog "0-$(($(nproc) - 1))"; pids+=($!); done
stress-ng --quiet --fork 2 --timeout 60 >/dev/null 2>&1 & storm=$!
end=$((SECONDS + 60))
while [ $SECONDS -lt $end ]; do hackbench -p -g 2 -l 100 >/dev/null; done
wait $storm || true
stop_hogs "${pids[@]}"
violations=$(json work_conservation.violations)
longest=$(json work_conservation.longest_ns)
note "mixed load, 60 s: $violations times longer than 10 ms, the longest $((longest / 1000)) us"
# The aim is none; here only what no delay of the emulation explains fails.
[ "$longest" -lt 250000000 ] || fail "a CPU idled for $((longest / 1000)) us while a task waited"
still_attached
stop_baton
