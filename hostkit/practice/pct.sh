#!/bin/sh
# Stand-in for Proxmox VE's `pct`, for the practice fleet: status, list, exec, config.
#
# It keeps what matters to a caller: options end at `--` or at the first word that is none of pct's; the
# command is run without a shell, with the caller's environment and a PATH that pct has reset; its exit
# status is passed on. There is no container behind it: one kernel, one process table, one file system.
pve=@PVE@
ct=@CT@
PATH=/sbin:/bin:/usr/sbin:/usr/bin
export PATH

die() { printf '%s\n' "$1" >&2; exit 255; }
bad() { printf '400 Parameter verification failed.\n%s\npct %s\n' "$1" "$2" >&2; exit 255; }
need_vmid() {
    case $1 in
        [1-9][0-9][0-9]*) case $1 in *[!0-9]*) ;; *) return ;; esac ;;
    esac
    bad "vmid: type check ('integer') failed - got '$1'" "$2"
}
need_config() { [ -e "$pve/etc/pve/lxc/$1.conf" ] || die "Configuration file 'nodes/pve/lxc/$1.conf' does not exist"; }
running() { [ -e "$pve/run/lxc-$1.running" ]; }
state() { if running "$1"; then echo running; else echo stopped; fi; }

command=${1-}
[ $# -gt 0 ] && shift
case $command in
status)
    need_vmid "${1-}" "status <vmid> [OPTIONS]"
    need_config "$1"
    echo "status: $(state "$1")"
    ;;
list)
    header=
    for file in "$pve"/etc/pve/lxc/*.conf; do
        [ -e "$file" ] || continue
        [ -n "$header" ] || { header=done; printf '%-10s %-10s %-12s %-20s\n' VMID Status Lock Name; }
        id=${file##*/}
        id=${id%.conf}
        printf '%-10s %-10s %-12s %-20s\n' "$id" "$(state "$id")" "$(sed -n 's/^lock: //p' "$file")" \
            "$(sed -n 's/^hostname: //p' "$file")"
    done
    ;;
config)
    need_vmid "${1-}" "config <vmid> [OPTIONS]"
    need_config "$1"
    sort "$pve/etc/pve/lxc/$1.conf"
    ;;
exec)
    usage="exec <vmid> [<extra-args>] [OPTIONS]"
    keep=1
    vmid=
    # Options may stand on both sides of the VMID, and all of them up to `--` are taken for pct's own.
    while [ $# -gt 0 ]; do
        case $1 in
            --) shift; break ;;
            --keep-env=[01] | -keep-env=[01]) keep=${1#*=}; shift ;;
            --keep-env | -keep-env)
                shift
                case ${1-} in [01]) keep=$1; shift ;; *) keep=1 ;; esac
                ;;
            -*) bad "${1#-}: property is not defined in schema and the schema does not allow additional properties" "$usage" ;;
            *)
                # A word: the VMID, or (as pct does it) the command, whose options pct would then take for its own.
                if [ -z "$vmid" ]; then
                    vmid=$1
                    shift
                else
                    for word in "$@"; do
                        case $word in
                            --) break ;;
                            -*) bad "${word#-}: property is not defined in schema and the schema does not allow additional properties" "$usage" ;;
                        esac
                    done
                    break
                fi
                ;;
        esac
    done
    [ -n "$vmid" ] || bad "not enough arguments" "$usage"
    need_vmid "$vmid" "$usage"
    need_config "$vmid"
    running "$vmid" || die "container '$vmid' not running!"
    [ $# -gt 0 ] || die "missing command"
    unset SSL_CERT_FILE SSL_CERT_DIR OLDPWD
    if [ "$keep" = 0 ]; then
        # container=lxc is all that lxc-attach --clear-env leaves; the fleet's mark stays, so that it can be ended.
        set -- env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=lxc \
            sh -c 'exec "$@"' pct "$@"
    fi
    if [ "$1" = env ]; then
        # In a container /root is the container's own. Here that is a folder; and the mark outlives `env -i`.
        left=$#
        place=options
        while [ "$left" -gt 0 ]; do
            word=$1
            shift
            if [ "$place" = options ]; then
                case $word in
                    env | *=*) [ "$word" != HOME=/root ] || word=HOME=$ct/root ;;
                    -i) set -- "$@" -i; word=HOSTKIT_PRACTICE=${HOSTKIT_PRACTICE-} ;;
                    *) place=command ;;
                esac
            fi
            set -- "$@" "$word"
            left=$((left - 1))
        done
    fi
    exec "$@"
    ;;
'')
    printf 'ERROR: no command specified\nUSAGE: pct <COMMAND> [ARGS] [OPTIONS]\n' >&2
    exit 255
    ;;
*)
    printf "ERROR: unknown command 'pct %s'\nUSAGE: pct <COMMAND> [ARGS] [OPTIONS]\n" "$command" >&2
    exit 255
    ;;
esac
