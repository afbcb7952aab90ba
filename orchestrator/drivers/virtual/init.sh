# The first process of a guest, see guest.py. The kernel has mounted the host's files read-only at /.
# It works in the folder "guest" of the run; so does the kernel's process on the host, by whose /proc this one learns it.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
folder=$(readlink /proc/self/cwd)
run=${folder%/guest}

# 1. A writable layer over the host's files, in memory.
mount -t tmpfs -o mode=755 layers /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t devtmpfs devtmpfs dev
mkdir -p dev/shm dev/pts
mount -t tmpfs -o mode=1777 shared dev/shm
mount -t tmpfs -o mode=755 run run
mount -t cgroup2 cgroup2 sys/fs/cgroup
ln -sf /proc/self/fd dev/fd
echo "+cpu +memory +pids" >sys/fs/cgroup/cgroup.subtree_control

# 2. The run's folder: a copy of its files, with the folders that both sides use.
mount -t hostfs -o / host mnt
mount -t tmpfs -o mode=755 run-folder ".$run"
for entry in "mnt$run"/*; do
    name=${entry##*/}
    case $name in
    logs | checkpoints | guest)
        mkdir ".$run/$name"
        mount --bind "$entry" ".$run/$name"
        ;;
    nodes | control | lock | commands) ;;  # of the host's side
    *) cp -R "$entry" ".$run/$name" ;;
    esac
done
mkdir -m 700 ".$run/nodes" ".$run/control"
umount mnt

# 3. What writes to the host's files does so within half a virtual second.
echo 50 >proc/sys/vm/dirty_writeback_centisecs
echo 50 >proc/sys/vm/dirty_expire_centisecs
ip link set lo up

# 4. The environment, the working directory and the program of the host's side.
mount --no-mtab --move . /
exec chroot . /bin/sh -c '
start=$(cat "$0")
rm "$0"
eval "$start"
' "$run/guest/start"
