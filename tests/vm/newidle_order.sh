# CPUs idle least while tasks wait with newidle=plan, longest with off
LOAD=/run/baton-test/newidle_load
start_baton
"$LOAD" burst 1 >/dev/null
declare -A sum=([off]=0 [agent]=0 [plan]=0)
runs=0
# measure: six more runs of each. In turns: the machine below may be busier at one time than at another.
measure() {
    for value in off agent plan plan agent off off agent plan plan agent off off agent plan plan agent off; do
        $LAB set newidle=$value >/dev/null
        line=$("$LOAD" burst 2)
        ms=$(sed -n 's/.*: \([0-9.]*\) ms of CPU idle.*/\1/p' <<<"$line")
        sum[$value]=$(awk -v a="${sum[$value]}" -v b="$ms" 'BEGIN { print a + b }')
    done
    runs=$((runs + 6))
    note "idle while tasks wait, ms a wave, mean of $runs runs: $(mean off), $(mean agent), $(mean plan); ${line#*waves of }"
}
mean() { awk -v name="$1" -v s="${sum[$1]}" -v n=$runs 'BEGIN { printf "%s %.1f", name, s / n }'; }
# What the host takes from a virtual CPU is in every figure: up to four of them it may move an average by
# some ms; eight wait for two real ones most of the time, with each setting, and only the ends of the order
# stand out of that.
in_order() {
    awk -v o="${sum[off]}" -v a="${sum[agent]}" -v p="${sum[plan]}" -v n=$runs -v cpus="$(nproc)" \
        'BEGIN { exit !(p < o && (cpus > 4 || p < a + 5 * n && a < o)) }'
}
# More runs where six do not tell: three times as many halve the noise, nearly.
for _ in 1 2 3; do
    measure
    ! in_order || break
done
in_order || fail "not in the order off, agent, plan"
still_attached
stop_baton
