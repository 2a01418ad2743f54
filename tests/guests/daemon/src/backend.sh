# A backend made of processes: bash -c THIS backend VERB DIR ...
# DIR/ID is one sandbox: pid:start:user:thread:deployment:created_ms, where `start` (field 22 of /proc/PID/stat) tells a process
# from a later one with its number. DIR/log says what was done. Exit codes: 10 exists, 11 not there.
set -u
verb=$1 dir=$2
shift 2

now() { printf '%s' "$(($(date +%s%N) / 1000000))"; }

# started PID: prints when a living process was started; fails if there is none.
started() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # What is left begins with the state, field 3.
    set -- ${stat##*) }
    case $1 in Z | X) return 1 ;; esac
    started=${20}
}

# lives PID START
lives() { started "$1" && [ "$started" = "$2" ]; }

# load ID: reads its record; fails if there is none.
load() {
    { IFS=: read -r pid start user thread deployment created <"$dir/$1"; } 2>/dev/null
}

# What a sandbox's process begins as. Whoever started the gateway may have left files open for it.
daemon='
    cd / && echo $$ && exec >/dev/null || exit
    for file in /proc/$$/fd/*; do
        [ "${file##*/}" -le 2 ] || eval "exec ${file##*/}>&-"
    done
    exec -a "$1" sleep 1000000
'

# All changes one after the other, whichever gateway makes them.
lock() { exec 9>>"$dir/.lock" && flock 9; }

case $verb in
create)
    id=$1 user=$2 thread=$3 deployment=$4
    mkdir -p -- "$dir" && lock || exit 1
    owner=$user:$thread:$deployment
    if load "$id" && lives "$pid" "$start"; then exit 10; fi
    # A session of its own, with nobody's files open, and no child of ours: neither the end of this command nor that of the gateway ends it.
    pid=$(
        exec 9>&-
        setsid -f bash -c "$daemon" daemon "sandgate-daemon-$id" </dev/null 2>/dev/null
    )
    created=$(now)
    for _ in {1..500}; do
        { IFS= read -r -d '' name <"/proc/$pid/cmdline"; } 2>/dev/null
        [ "${name-}" = "sandgate-daemon-$id" ] && break
        sleep 0.01
    done
    [ "${name-}" = "sandgate-daemon-$id" ] && started "$pid" || { echo "the process did not start" >&2; exit 1; }
    start=$started
    if ! { printf '%s\n' "$pid:$start:$owner:$created" >"$dir/.new" && mv -f -- "$dir/.new" "$dir/$id"; }; then
        kill -KILL "$pid"
        exit 1
    fi
    echo "created $id $pid $created" >>"$dir/log"
    echo "$pid:$start"
    ;;
find)
    id=$1
    load "$id" && [ "$deployment" = "$2" ] && lives "$pid" "$start" || exit 11
    echo "$pid:$start"
    ;;
inventory)
    wanted=$1 after=$2 left=$3
    [ -d "$dir" ] || exit 0
    LC_ALL=C
    for file in "$dir"/????????????????; do
        id=${file##*/}
        [[ $id > $after ]] || continue
        load "$id" && [ "$deployment" = "$wanted" ] && lives "$pid" "$start" || continue
        [ $left -gt 0 ] || { echo more; break; }
        left=$((left - 1))
        echo "$id:$pid:$start:$user:$thread:$created"
    done
    ;;
probe)
    lives "$2" "$3" || exit 11
    ;;
destroy)
    id=$1 number=$2 begun=$3
    sleep "$4"
    mkdir -p -- "$dir" && lock || exit 1
    if lives "$number" "$begun"; then
        kill -KILL "$number" || exit 1
        while lives "$number" "$begun"; do sleep 0.01; done
        echo "destroyed $id $number $(now)" >>"$dir/log"
    fi
    # Its record, not that of a successor.
    if load "$id" && [ "$pid:$start" = "$number:$begun" ]; then rm -f -- "$dir/$id" || exit 1; fi
    ;;
esac
