# weights count as load: one heavy task gets a CPU for itself, many light ones share the others
start_baton --agent-share 0
pids=()
hog "$(node_cpus 0)" -10; heavy=$!
for _ in $(seq 8); do hog "$(node_cpus 0)" 5; pids+=($!); done
sleep 6
h0=$(cpu_ticks $heavy) s0=$(cut -d' ' -f1 /proc/uptime)
sleep 5
share=$(awk -v t=$(($(cpu_ticks $heavy) - h0)) -v a="$s0" -v b="$(cut -d' ' -f1 /proc/uptime)" 'BEGIN { printf "%.2f", t / 100 / (b - a) }')
note "the heavy one of 9 hogs on 4 CPUs gets $share of a CPU"
awk -v s="$share" 'BEGIN { exit !(s > 0.75) }' || fail "the heavy task gets $share of a CPU"
still_attached
stop_hogs $heavy "${pids[@]}"
stop_baton
