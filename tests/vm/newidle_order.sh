# CPUs idle least while tasks wait with newidle=plan, longest with off
LOAD=/run/baton-test/newidle_load
start_baton
"$LOAD" burst 1 >/dev/null
declare -A idle=([off]=0 [agent]=0 [plan]=0)
# In turns: the machine below may be busier at one time than at another.
for _ in 1 2 3; do
    for value in off agent plan plan agent off; do
        $LAB set newidle=$value >/dev/null
        line=$("$LOAD" burst 2)
        ms=$(sed -n 's/.*: \([0-9.]*\) ms of CPU idle.*/\1/p' <<<"$line")
        idle[$value]=$(awk -v a="${idle[$value]}" -v b="$ms" 'BEGIN { print a + b / 6 }')
    done
done
note "idle while tasks wait, ms a wave: off ${idle[off]}, agent ${idle[agent]}, plan ${idle[plan]}; ${line#*waves of }"
# What the host takes from a virtual CPU is in every figure: up to four of them it may move an average by
# some ms; eight wait for two real ones most of the time, with each setting, and only the ends of the order
# stand out of that.
if [ "$(nproc)" -le 4 ]; then
    awk -v o="${idle[off]}" -v a="${idle[agent]}" -v p="${idle[plan]}" 'BEGIN { exit !(p < a + 5 && p < o && a < o) }' ||
        fail "not in the order off, agent, plan"
else
    awk -v o="${idle[off]}" -v p="${idle[plan]}" 'BEGIN { exit !(p < o) }' || fail "plan is not below off"
fi
still_attached
stop_baton
