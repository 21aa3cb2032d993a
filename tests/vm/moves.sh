# waiting tasks are moved to idle CPUs and run, and every request ends as exactly one outcome
# By the agent: with plans the hogs spread before it comes to them.
start_baton --newidle off
pids=()
# Two CPUs are left for the agent and the shell.
for _ in 1 2 3 4 5 6; do
    hog 0
    pids+=($!)
done
sleep 1
released "${pids[@]}"
sleep 3
used=$(for p in "${pids[@]}"; do last_cpu "$p"; done | sort -u | wc -l)
note "6 hogs that were bound to CPU 0 run on $used CPUs"
[ "$used" -ge 5 ] || fail "they do not spread"
still_attached
stop_hogs "${pids[@]}"
stop_baton
issued=$(counter issued) applied=$(outcome applied)
sum=$(sed -n 's/.*issued = \(.*\)/\1/p' "$LOG" | tail -n 1 | grep -o '[0-9]*' | paste -sd+ | bc)
landed=$(counter "moved ran on the destination") diverted=$(counter elsewhere)
note "$issued issued = $sum ended; $applied applied = $landed ran there + $diverted ran elsewhere first"
[ "$issued" = "$sum" ] || fail "requests are lost"
[ "$applied" -gt 0 ] || fail "nothing was moved"
# Each hog may have been killed between a move and its turn. A CPU that runs dry may take a moved
# task on before the destination gets to it: it is seen there instead.
[ $((landed + diverted)) -ge $((applied - ${#pids[@]})) ] || fail "moved tasks are not seen running"
[ "$landed" -ge $((applied / 2)) ] || fail "most moved tasks run elsewhere"
