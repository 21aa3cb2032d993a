# weights count as load: one heavy task gets a CPU for itself, many light ones share the others
# Within one queue the heavy one (9,548) hardly notices a light one (335). It is the light one that
# shows whether the balance counts weights: beside the heavy one it gets 0.03 of a CPU, with the
# other seven on three CPUs 0.37.
start_baton
lights=()
hog "$(node_cpus 0)" -10; heavy=$!
for _ in $(seq 8); do hog "$(node_cpus 0)" 5; lights+=($!); done
sleep 6
declare -A before
for pid in $heavy "${lights[@]}"; do before[$pid]=$(cpu_ticks "$pid"); done
sleep 8
ran=()
for pid in $heavy "${lights[@]}"; do ran+=($(($(cpu_ticks "$pid") - before[$pid]))); done
note "clock ticks of the heavy one of 9 hogs on 4 CPUs: ${ran[0]}; of the light ones: ${ran[*]:1}"
# Shares of what all nine got, since the machine itself may be slow: a CPU is a quarter of it.
read -r share least < <(awk '{ for (i = 1; i <= NF; i++) sum += $i
    min = $2; for (i = 3; i <= NF; i++) if ($i < min) min = $i
    printf "%.2f %.2f\n", 4 * $1 / sum, 4 * min / sum }' <<<"${ran[*]}")
# Counted by heads it would be 0.44 for each.
awk -v s="$share" 'BEGIN { exit !(s > 0.7) }' || fail "the heavy task gets $share of a CPU"
awk -v s="$least" 'BEGIN { exit !(s > 0.15) }' || fail "a light task gets $least of a CPU: it stays with the heavy one"
still_attached
stop_hogs $heavy "${lights[@]}"
stop_baton
