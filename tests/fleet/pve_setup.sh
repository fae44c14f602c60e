#!/bin/sh
# pve_setup.sh FOLDER "CONTAINER..." PATH...: become process 1 of the Proxmox host of the fleet in FOLDER.
# Runs inside new mount, net, uts, ipc and pid namespaces. PATHs are shown read-only on every host.
set -eu
folder=$1 containers=$2
shift 2
mount --make-rprivate /

overlay() {  # NAME TARGET: this machine's own root below, the host's own layer above
    mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/hosts/$1/upper,workdir=$folder/hosts/$1/work" "$2"
}
root=$folder/hosts/pve/root
overlay pve "$root"
for vmid in $containers; do
    overlay "ct$vmid" "$root/var/lib/lxc/$vmid/rootfs"
done
for place in tmp run mnt; do
    mount -t tmpfs tmpfs "$root/$place"
done
for path in "$@"; do
    mkdir -p "$root$path"
    mount --rbind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path"
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"  # a fresh one: LXC looks for its bridges in /sys/class/net of this namespace
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
hostname pve
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old || :
exec /usr/sbin/fleet-init
