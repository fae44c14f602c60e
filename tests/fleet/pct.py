#!/usr/bin/python3 -IS
"""Stands for Proxmox VE's `pct` on the fleet's pve, over real LXC: list, status, config, exec, push, pull, start, stop.

As the original does: options before `--` are pct's own, `exec` uses no shell and hands on the caller's environment but
a PATH of its own, `push` and `pull` exit 0 when the copy fails.
"""

import os
import re
import subprocess
import sys

NODE = "pve"
CONFIGS = "/etc/pve/lxc"
PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
FAILED = 255
LXC = "/usr/bin/"


def die(message):
    sys.stderr.write(message + "\n")
    sys.exit(FAILED)


def bad_parameter(message):
    die("400 Parameter verification failed.\n" + message)


def config(vmid):
    if not re.fullmatch("[1-9][0-9]{2,8}", vmid):
        bad_parameter(f"vmid: type check ('integer') failed - got '{vmid}'")
    try:
        with open(f"{CONFIGS}/{vmid}.conf") as file:
            lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
    except OSError:
        die(f"Configuration file 'nodes/{NODE}/lxc/{vmid}.conf' does not exist")
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def running(vmid):
    """A running container's monitor listens on an abstract socket of this network namespace."""
    with open("/proc/net/unix") as table:
        return any(line.rstrip("\n").endswith(f" @/var/lib/lxc/{vmid}/command") for line in table)


def split_options(words, known):
    """Return (options, positional words); whatever follows `--` is positional."""
    options, plain = {}, []
    while words:
        word = words.pop(0)
        if word == "--":
            return options, plain + words
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        name, given, value = word.lstrip("-").partition("=")
        if name not in known:
            bad_parameter(
                f"{name}: property is not defined in schema and the schema does not allow additional properties"
            )
        if not given:
            value = words.pop(0) if words and not words[0].startswith("-") else "1"
        options[name] = value
    return options, plain


def need(words, least, most):
    if len(words) < least:
        bad_parameter("not enough arguments")
    if len(words) > most:
        bad_parameter("too many arguments")
    return words


def do_exec(words):
    options, plain = split_options(words, {"keep-env"})
    vmid, *argv = need(plain, 1, sys.maxsize)
    config(vmid)
    if not running(vmid):
        die(f"container '{vmid}' not running!")
    if not argv:
        die("missing command")
    keep = options.get("keep-env", os.environ.get("FLEET_PCT_KEEP_ENV", "1")) != "0"
    os.environ["PATH"] = PATH
    os.execv(
        LXC + "lxc-attach", ["lxc-attach", "-n", vmid, "--keep-env" if keep else "--clear-env", "--", *argv]
    )


def inside(vmid, script, *arguments, **streams):
    command = [LXC + "lxc-attach", "-n", vmid, "--clear-env", "--", "/bin/sh", "-c", script, "sh", *arguments]
    return subprocess.run(command, check=False, **streams).returncode


def do_push(words):
    options, plain = split_options(words, {"perms", "user", "group"})
    vmid, source, target = need(plain, 3, 3)
    config(vmid)
    if not running(vmid):
        die("can only push files to a running CT")
    try:
        with open(source, "rb") as file:
            failed = inside(
                vmid,
                'cat >"$1" && { [ -z "$2" ] || chmod "$2" "$1"; }',
                target,
                options.get("perms", ""),
                stdin=file,
            )
    except OSError as error:
        sys.stderr.write(f"failed to open {source} for reading: {error.strerror}\n")
        return
    if failed:
        sys.stderr.write(f"failed to create file: {target}\n")


def do_pull(words):
    _options, plain = split_options(words, {"perms", "user", "group"})
    vmid, source, target = need(plain, 3, 3)
    config(vmid)
    if not running(vmid):
        die("can only pull files from a running CT")
    if inside(vmid, 'test -f "$1" && test -r "$1"', source):
        sys.stderr.write(f"failed to open {source}: No such file or directory\n")
        return
    with open(target, "wb") as file:
        inside(vmid, 'exec cat "$1"', source, stdout=file)


def do_list(words):
    need(words, 0, 0)
    vmids = sorted(int(name[: -len(".conf")]) for name in os.listdir(CONFIGS) if name.endswith(".conf"))
    row = "%-10s %-10s %-12s %-20s"
    if vmids:
        print(row % ("VMID", "Status", "Lock", "Name"))
    for vmid in map(str, vmids):
        known = config(vmid)
        print(row % (vmid, state(vmid), known.get("lock", ""), known.get("hostname", "")))


def state(vmid):
    return "running" if running(vmid) else "stopped"


def do_status(words):
    (vmid,) = need(words, 1, 1)
    config(vmid)
    print("status: " + state(vmid))


def do_config(words):
    (vmid,) = need(words, 1, 1)
    for key, value in sorted(config(vmid).items()):
        print(f"{key}: {value}")


def do_start(words):
    (vmid,) = need(words, 1, 1)
    config(vmid)
    if running(vmid):
        die(f"CT {vmid} already running")
    sys.exit(FAILED if subprocess.call([LXC + "lxc-start", "-n", vmid]) else 0)


def do_stop(words):
    (vmid,) = need(words, 1, 1)
    config(vmid)
    if not running(vmid):
        die(f"CT {vmid} not running")
    sys.exit(FAILED if subprocess.call([LXC + "lxc-stop", "-k", "-n", vmid]) else 0)


def main():
    commands = {
        name[len("do_") :]: function for name, function in globals().items() if name.startswith("do_")
    }
    name, words = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if name not in commands:
        die(f"ERROR: unknown command 'pct {name}'\nUSAGE: pct <COMMAND> [ARGS] [OPTIONS]")
    commands[name](words)


if __name__ == "__main__":
    main()
