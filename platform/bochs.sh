# Sourced by test.sh. in_bochs COMMANDS PROGRAM...: runs COMMANDS (one a line, in a folder that holds the programs) in a PC
# that Bochs emulates, with AVX-512 VNNI and AVX-VNNI, on a Debian kernel. For correctness only: its clock counts instructions.
# A boot takes 15 to 30 s; one boot runs all.

bochs_kernel() {  # the kernel image, without installing the package (which would bring initramfs-tools)
  local folder=$OCTAVO_CACHE/bochs-kernel name
  if ! compgen -G "$folder/boot/vmlinuz-*" >/dev/null; then
    name=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/{print $2; exit}')
    [ -n "$name" ] || { say "apt knows no linux-image-cloud-amd64: run apt-get update" >&2; return 1; }
    rm -rf "$folder.new" && mkdir -p "$folder.new" && ( cd "$folder.new" && apt-get -qq download "$name" && dpkg-deb -x ./*.deb . ) || return 1
    rm -rf "$folder" && mv "$folder.new" "$folder"
  fi
  compgen -G "$folder/boot/vmlinuz-*" | head -n 1
}

# bochs_initramfs FOLDER COMMANDS PROGRAM...: the guest's files, packed to FOLDER/iso/isolinux/initrd.
bochs_initramfs() {
  local tree=$1/tree out=$1/iso/isolinux/initrd program library
  mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/t"
  cp /bin/busybox "$tree/bin/"
  mknod -m 600 "$tree/dev/console" c 5 1 2>/dev/null || true  # without it the kernel complains and goes on
  install -m 755 "$platform/bochs/guest-init.sh" "$tree/init"
  gcc -O1 -static -o "$tree/t/poweroff" "$platform/bochs/poweroff.c" || return 1
  printf '%s\n' "$2" >"$tree/t/commands"
  shift 2
  for program in "$@"; do
    strip -o "$tree/t/$(basename "$program")" "$program" || return 1
    for library in $(ldd "$program" | grep -oE '/[^ ]+'); do
      mkdir -p "$tree$(dirname "$library")" && cp -L "$library" "$tree$library"
    done
  done
  ( cd "$tree" && find . | cpio -o -H newc --quiet ) >"$out"
}

in_bochs() {
  local commands=$1 folder kernel rc=0
  shift
  folder=$(mktemp -d)
  mkdir -p "$folder/iso/isolinux"
  kernel=$(bochs_kernel) && cp "$kernel" "$folder/iso/isolinux/vmlinuz" && bochs_initramfs "$folder" "$commands" "$@" || return 1
  cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$folder/iso/isolinux/"
  # tsc: CPUID names a frequency, but the counter moves once an instruction. idle=poll: the emulator sleeps in real time
  # on HLT. no5lvl: SMM restore panics with LA57. The rest keeps a Debian kernel from testing itself for half a minute.
  cat >"$folder/iso/isolinux/isolinux.cfg" <<'TEXT'
DEFAULT l
PROMPT 0
LABEL l
 KERNEL vmlinuz
 APPEND initrd=initrd console=ttyS0 quiet panic=0 idle=poll no5lvl tsc_early_khz=100000 tsc=reliable cryptomgr.notests=1 mitigations=off nokaslr
TEXT
  xorriso -as mkisofs -quiet -o "$folder/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
    -no-emul-boot -boot-load-size 4 -boot-info-table "$folder/iso" >/dev/null 2>&1 || return 1
  cp "$platform/bochs/bochsrc" "$folder/"
  ( cd "$folder" && python3 "$platform/bochs/run.py" "${OCTAVO_BOCHS_SECONDS:-900}" ) || rc=$?
  rm -rf "$folder"
  return "$rc"
}

# Every kernel and the tests of the vector forms, in the emulated PC.
kernels_in_bochs() {
  local tests=$1/tests/kernels
  in_bochs 'set -e
./trap_test --gtest_brief=1
./arch_test --gtest_brief=1 --gtest_filter=*Bf16*
./execution_test
./fp8_test --gtest_brief=1 --gtest_filter=Fp8Pairs*Tail:Fp8Pairs*Order*
./gemm_test --gtest_brief=1 --gtest_filter=*EveryTail*/avx*:*EveryActivation*/avx*
./float_order_test --gtest_brief=1 --gtest_filter=*RowsAreChains/avx512*
./qkv_test --gtest_brief=1 --gtest_filter=*/avx512*-*BlocksAfterBlocks*
./blocked_test --gtest_brief=1 --gtest_filter=*BlockOfCodes*/avx*:*CodesHave*/avx512vnni
./sdpa_test --gtest_brief=1 --gtest_filter=*EveryTail/avx512*
./sdpa_decode_int8_test --gtest_brief=1 --gtest_filter=*MostCodes*/avx512*' \
    "$tests"/{trap,arch,execution,fp8,gemm,float_order,qkv,blocked,sdpa,sdpa_decode_int8}_test
}
