#!/bin/sh
# Runs a command on an emulated Raspberry Pi: `enter.sh MACHINE ROOT EMULATOR SHARED COMMAND...`
# As root, or with PI_USER=1000 as the user of that number, who may write what this one may.
#
# Called through `unshare --mount` (and `--user` where the kernel gives each user namespace its own binfmt_misc, Linux
# 6.7): what is mounted and registered here is seen by nobody else and ends with this process, however it ends. Without
# `--user` the registration is the machine's, and the trap takes it back.
set -eu
machine=$1 root=$2 emulator=$3 shared=$4
shift 4

# binfmt_misc: which interpreter runs which ELF machine (docs.kernel.org/admin-guide/binfmt-misc.html). F opens the
# emulator now, so that the root needs no copy of it.
case $emulator in
*aarch64*) head='\x7fELF\x02\x01\x01' machine_code='\xb7' ;;
*) head='\x7fELF\x01\x01\x01' machine_code='\x28' ;;
esac
name=edge-infer-$$
magic=$head'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00'$machine_code'\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
mount -t tmpfs tmpfs "$root/tmp"
mkdir "$root/tmp/binfmt"
mount -t binfmt_misc binfmt_misc "$root/tmp/binfmt"
trap 'echo -1 >"$root/tmp/binfmt/$name" 2>/dev/null || true' EXIT
trap 'exit 143' TERM INT HUP
printf '%s' ":$name:M::$magic:$mask:$emulator:F" >"$root/tmp/binfmt/register"

# The CPU as a Pi shows it: onnxruntime's cpuinfo reads /proc and /sys and fails on those of an x86.
case $machine in
pi5) part=0xd0b variant=0x4 revision=1 cpu=cortex-a76 features='fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp' ;;
pi4) part=0xd08 variant=0x0 revision=3 cpu=cortex-a72 features='fp asimd evtstrm crc32 cpuid' ;;
pi2) part=0xc07 variant=0x0 revision=5 cpu=cortex-a7 features='half thumb fastmult vfp edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32 lpae evtstrm' ;;
*) echo "enter.sh: machine '$machine' is not known: pi2, pi4 or pi5" >&2 && exit 2 ;;
esac
architecture=8
[ "$machine" = pi2 ] && architecture=7
mount --rbind /proc "$root/proc"
for core in 0 1 2 3; do
  printf 'processor\t: %s\nBogoMIPS\t: 108.00\nFeatures\t: %s\nCPU implementer\t: 0x41\nCPU architecture: %s\n' "$core" "$features" "$architecture"
  printf 'CPU variant\t: %s\nCPU part\t: %s\nCPU revision\t: %s\n\n' "$variant" "$part" "$revision"
done >"$root/tmp/cpuinfo"
mount --bind "$root/tmp/cpuinfo" "$root/proc/cpuinfo"
mount -t tmpfs tmpfs "$root/sys"
for file in present possible online; do
  mkdir -p "$root/sys/devices/system/cpu"
  echo 0-3 >"$root/sys/devices/system/cpu/$file"
done
echo 7 >"$root/sys/devices/system/cpu/kernel_max"
for core in 0 1 2 3; do
  place=$root/sys/devices/system/cpu/cpu$core
  mkdir -p "$place/topology" "$place/cpufreq"
  echo 0 >"$place/topology/physical_package_id"
  echo "$core" >"$place/topology/core_id"
  echo f >"$place/topology/core_siblings"
  echo 0-3 >"$place/topology/core_siblings_list"
  printf '%x\n' $((1 << core)) >"$place/topology/thread_siblings"
  echo "$core" >"$place/topology/thread_siblings_list"
  echo 1500000 >"$place/cpufreq/cpuinfo_max_freq"
  echo 600000 >"$place/cpufreq/cpuinfo_min_freq"
done
mount --rbind /dev "$root/dev"
# Who `localhost` is: the root is made of packages, and no package has that file.
[ -s "$root/etc/hosts" ] || printf '127.0.0.1\tlocalhost\n' >"$root/etc/hosts"
mkdir -p "$root/tree"
mount --bind "$shared" "$root/tree"

# One user is all that a user namespace made without root knows, so that the other one needs another namespace.
if [ -n "${PI_USER-}" ]; then
  set -- "$(command -v unshare)" --user --map-user="$PI_USER" --map-group="$PI_USER" --root="$root" --wd=/ "$@"
else
  set -- "$(command -v chroot)" "$root" "$@"
fi
env -i QEMU_CPU="$cpu" HOME=/tmp LANG=C.UTF-8 TERM=dumb CI=1 PATH=/opt/site/bin:/usr/bin \
  LD_LIBRARY_PATH=/usr/lib/arm-linux-gnueabihf/blas:/usr/lib/arm-linux-gnueabihf/lapack \
  PYTHONPATH=/tree/tree:/tree/tree/converters/src:/opt/site PYTHONDONTWRITEBYTECODE=1 PI_MACHINE="$machine" "$@"
