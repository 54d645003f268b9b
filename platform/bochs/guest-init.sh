#!/bin/busybox sh
# /init of the guest: runs ./commands on the serial console and powers off.
export PATH=/bin OCTAVO_IN_BOCHS=1
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
exec </dev/ttyS0 >/dev/ttyS0 2>&1
cd /t
busybox sh ./commands
echo "GUEST-RC=$?"
exec ./poweroff
