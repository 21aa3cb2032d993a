# CPUs idle least while tasks wait with newidle=plan
LOAD=/run/baton-test/newidle_load
start_baton
"$LOAD" burst 1 >/dev/null
declare -A idle=([off]=0 [agent]=0 [plan]=0)
# In turns: the machine below may be busier at one time than at another.
for _ in 1 2 3; do
    for value in off agent plan plan agent off; do
        $LAB set newidle=$value >/dev/null
        line=$("$LOAD" burst 3)
        ms=$(sed -n 's/.*: \([0-9.]*\) ms of CPU idle.*/\1/p' <<<"$line")
        idle[$value]=$(awk -v a="${idle[$value]}" -v b="$ms" 'BEGIN { print a + b / 6 }')
    done
done
note "idle while tasks wait, ms a wave: off ${idle[off]}, agent ${idle[agent]}, plan ${idle[plan]}; ${line#*waves of }"
# The agent comes between the two; here its answer may take as long as the next tick, so a fifth is
# left to the noise of one run.
awk -v o="${idle[off]}" -v a="${idle[agent]}" -v p="${idle[plan]}" 'BEGIN { exit !(p < o && p < a && a < 1.2 * o) }' ||
    fail "not in the order off, agent, plan"
still_attached
stop_baton
