# baton compare: a table, JSON and a page; no call of a thing against itself; ejected is invalid; Ctrl-C restores
need hackbench
need python3
cd "$WORK"

# field FILE EXPRESSION: Python's view of a report in JSON, as r.
field() { python3 -c "import json; r = json.load(open('$1')); print($2)"; }
# compare STATUS NAME ARGUMENTS…: runs it in quiet and checks its exit status.
compare() {
    local want=$1 name=$2 status=0
    shift 2
    "$LAB" compare "$@" --quiet --record "$name.jsonl" --json "$name.json" --html "$name.html" \
        >"$name.txt" 2>"$name.err" || status=$?
    [ $status = "$want" ] || { cat "$name.err"; fail "compare $*: status $status instead of $want"; }
    is_state disabled || fail "compare $*: state is $(state) afterwards"
    ! pgrep -x scx_baton || fail "compare $*: a scheduler is left"
}
verdicts() { field "$1.json" "' '.join(x['verdict'] for x in r['evaluation']['rows'])"; }
small=hackbench:groups=2,loops=50

# The kernel's scheduler and ours: every run valid, ours in charge and counted.
compare 0 sides kernel baton -w $small --rounds 6 --aa-rounds 3
note "hackbench kernel | baton: $(sed -n '/^baton /p' sides.txt | head -n 1 | tr -s ' ')"
[ "$(field sides.json "sum('invalid' in x for x in r['record']['runs'])")" = 0 ] ||
    { cat sides.txt; fail "valid runs are called invalid"; }
[ "$(field sides.json "'agent CPU %' in r['evaluation']['beside'][0]['counters']")" = True ] ||
    fail "the agent's cost is not counted"
[ "$(field sides.json "'lb_count /s' in r['evaluation']['beside'][0]['counters']")" = True ] ||
    fail "the balancing counters are missing"
[ "$(field sides.json "r['record']['header']['environment']['kernel']")" = "$(uname -r)" ] ||
    fail "the kernel is not recorded"
grep -q '<svg ' sides.html || fail "the page has no picture"
! grep -qE '(src|href)="https?:' sides.html || fail "the page asks the network"
"$LAB" compare --from sides.jsonl >again.txt
cmp sides.txt again.txt || fail "a record is shown otherwise than it was"

# The same thing twice, and settings switched on the running scheduler.
compare 0 same baton baton -w $small --rounds 6 --aa-rounds 3
[ "$(verdicts same)" = no_call ] || { cat same.txt; fail "baton against itself: $(verdicts same)"; }
[ "$(field same.json "r['record']['header']['switched_live']")" = True ] || fail "it was reloaded"
compare 0 live "baton:--workers cpu --serialize-order always" "baton:--workers cpu" -w $small \
    --rounds 6 --aa-rounds 3
[ "$(field live.json "sum('invalid' in x for x in r['record']['runs'])")" = 0 ] ||
    { cat live.txt; fail "switching live makes runs invalid"; }
note "serialize-order always | elected: $(sed -n '/^baton:/p' live.txt | head -n 1 | tr -s ' ')"

# The kernel ends the scheduler in mid-run: that run is invalid, the next one starts it anew.
"$LAB" compare baton kernel -w hackbench:groups=2,loops=300 --rounds 2 --aa-rounds 1 --warmup 0 \
    --record killed.jsonl --json killed.json >killed.txt 2>killed.err &
lab=$!
# By the shell itself, and without a moment's delay: among 80 tasks a process more takes seconds.
mkfifo "$WORK/never"
in_a_run() { # in_a_run: SCHEDULER is its process and hackbench runs
    local end=$((SECONDS + 60)) state children child name hackbench
    while [ $SECONDS -lt $end ]; do
        SCHEDULER='' hackbench=''
        for children in /proc/$lab/task/*/children; do
            read -ra children <"$children" || true
            for child in "${children[@]}"; do
                { read -r name <"/proc/$child/comm"; } 2>/dev/null || continue
                case $name in
                scx_baton) SCHEDULER=$child ;;
                hackbench) hackbench=$child ;;
                esac
            done
        done
        read -r state <$SCX/state
        [ "$state" != enabled ] || [ -z "$SCHEDULER" ] || [ -z "$hackbench" ] || return 0
        read -rt 0.1 _ <>"$WORK/never" || true
    done
    return 1
}
in_a_run || fail "no run begins"
kill -KILL "$SCHEDULER"
wait $lab || { cat killed.err; fail "status $? after an ejection"; }
invalid=$(field killed.json "[x['invalid'] for x in r['record']['runs'] if 'invalid' in x]")
note "killed in mid-run: $invalid"
[[ $invalid == *ejected* ]] || { cat killed.txt killed.err; dmesg | grep "sched_ext: BPF" | tail -n 12; fail "a run without its scheduler counts"; }
[ "$(field killed.json "len([x for x in r['record']['runs'] if 'invalid' in x])")" = 1 ] ||
    { cat killed.txt; fail "one ejection spoils more than one run"; }
is_state disabled || fail "state is $(state)"

# Ctrl-C in mid-run: what is complete is shown, nothing is left behind.
"$LAB" compare baton kernel -w hackbench:groups=4,loops=300 --record broken.jsonl \
    >broken.txt 2>broken.err &
lab=$!
wait_for 120 grep -q '^3/' broken.err || fail "three runs take more than 120 s"
in_a_run || fail "no run begins"
kill -INT $lab
status=0
wait $lab || status=$?
[ $status = 1 ] || { cat broken.err; fail "status $status after Ctrl-C"; }
is_state disabled || fail "state is $(state) after Ctrl-C"
! pgrep -x 'scx_baton|hackbench' || fail "a process is left after Ctrl-C"
grep -q -- '--resume broken.jsonl' broken.err || fail "it is not told how to go on"

# Another scheduler that is there already is left alone.
cd - >/dev/null
start_baton
status=0
"$LAB" compare kernel kernel --record "$WORK/none.jsonl" 2>"$WORK/none.err" || status=$?
[ $status = 2 ] && grep -q 'schedules here already' "$WORK/none.err" || fail "it measures under another scheduler"
still_attached
stop_baton
