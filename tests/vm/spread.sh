# hogs started on one node spread to all CPUs within 1 s, also when that node has two for each CPU
start_baton
cpus=$(nproc) node0=$(node_cpus 0)
for per_cpu in 1 2; do
    n=$((per_cpu == 1 ? cpus - 1 : $(taskset -c "$node0" nproc) * 2))
    pids=()
    for _ in $(seq $n); do hog "$node0"; pids+=($!); done
    sleep 1
    released "${pids[@]}"
    sleep 1
    # From now on each must get about a CPU's worth: a hog that shares one gets half.
    before=(); for p in "${pids[@]}"; do before+=("$(cpu_ticks "$p")"); done
    start=$(cut -d' ' -f1 /proc/uptime)
    sleep 3
    end=$(cut -d' ' -f1 /proc/uptime)
    shared=0 nodes=
    for i in "${!pids[@]}"; do
        ticks=$(($(cpu_ticks "${pids[$i]}") - before[i]))
        nodes+=" $(last_cpu "${pids[$i]}")"
        awk -v t=$ticks -v s="$start" -v e="$end" 'BEGIN { exit !(t < (e - s) * 100 * 0.6) }' && shared=$((shared + 1))
    done
    note "$n hogs, $shared of them with less than 0.6 CPU; last on CPUs$nodes"
    # The agent and the shell take their share of one or two.
    [ $shared -le 2 ] || fail "$shared of $n hogs share a CPU"
    still_attached
    stop_hogs "${pids[@]}"
done
stop_baton
