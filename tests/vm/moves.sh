# waiting tasks are moved to idle CPUs, run there, and every request ends as exactly one outcome
start_baton
pids=()
# Two CPUs are left for the agent and the shell.
for _ in 1 2 3 4 5 6; do
    hog 0
    pids+=($!)
done
sleep 1
for p in "${pids[@]}"; do taskset -acp 0-7 "$p" >/dev/null; done
sleep 3
used=$(for p in "${pids[@]}"; do awk '{ sub(/.*\) /, ""); print $37 }' "/proc/$p/stat"; done | sort -u | wc -l)
note "6 hogs that were bound to CPU 0 run on $used CPUs"
[ "$used" -ge 5 ] || fail "they do not spread"
still_attached
kill "${pids[@]}"
wait "${pids[@]}" 2>/dev/null || true
timeout 60 hackbench -p -g 2 -l 50 >/dev/null
stop_baton
issued=$(counter issued) applied=$(outcome applied)
sum=$(sed -n 's/.*issued = \(.*\)/\1/p' "$LOG" | tail -n 1 | grep -o '[0-9]*' | paste -sd+ | bc)
landed=$(counter "moved ran on the destination") diverted=$(counter elsewhere)
note "$issued issued = $sum ended; $applied applied = $landed ran there + $diverted ran elsewhere first"
[ "$issued" = "$sum" ] || fail "requests are lost"
[ "$applied" -gt 0 ] || fail "nothing was moved"
# A task that ended, or went to sleep, before it ran again is seen nowhere.
[ $((landed + diverted)) -ge $((applied * 95 / 100)) ] || fail "moved tasks are not seen running"
# Another CPU that runs dry may take one on before it ran.
[ "$landed" -ge $((applied * 8 / 10)) ] || fail "moved tasks run elsewhere"
