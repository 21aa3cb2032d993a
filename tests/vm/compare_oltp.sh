# baton compare on MariaDB and PostgreSQL: every run valid and in charge of the server, which is gone afterwards
need python3
cd "$WORK"
tried=0
oltp() { # oltp NAME PROGRAM…: skips what is not installed
    local name=$1 program
    shift
    for program in "$@"; do
        PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null ||
            { note "$name not tried: $program is not installed"; return 0; }
    done
    "$LAB" compare kernel baton -w "oltp:$name,clients=4,seconds=4" --rounds 2 --aa-rounds 1 --quiet \
        --record "$name.jsonl" --json "$name.json" >"$name.txt" 2>"$name.err" ||
        { cat "$name.err" "$name.txt"; fail "$name: status $?"; }
    is_state disabled || fail "$name: state is $(state) afterwards"
    ! pgrep -x 'mariadbd|mysqld|postgres|sysbench|pgbench|scx_baton' || fail "$name: a process is left"
    ! ls -d "${TMPDIR:-/tmp}"/baton-db-* 2>/dev/null || fail "$name: its data is left"
    python3 - "$name.json" <<'END' || { cat "$name.txt"; fail "$name: not every run is valid"; }
import json, sys
runs = json.load(open(sys.argv[1]))["record"]["runs"]
assert len(runs) == 2 + 2 + 4, len(runs)
assert not any("invalid" in run for run in runs)
assert all(run["scores"][0] > 0 and run["scores"][1] > 0 for run in runs)
END
    note "$name: $(sed -n '/^baton /p' "$name.txt" | tr -s ' ' | paste -sd';')"
    tried=$((tried + 1))
}
oltp mariadb sysbench mariadbd
oltp postgresql pgbench initdb
[ $tried -gt 0 ] || skip "neither server is installed"
