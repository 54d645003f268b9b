"""Libraries that were linked on Debian 13 are made to ask for an older C library and C++ library.

Of what is newer than LIMITS they use less than a hundred functions. Those of ADDED become a library that they need then (older.cc and parts of GCC's
static library); of SAME an old library has an older version with the same results. So the newer version that a file asks for is overwritten
with an old one. A newer function that is in neither list is an error: either it gets its place there, or octavo does without it.

usage: older.py map FILE...              prints what the files take of ADDED, as a version script for the linker
       older.py change LIBRARY FILE...   changes the files; LIBRARY is what was linked by that script
"""

import pathlib
import struct
import sys

# manylinux_2_28: Debian 11, Ubuntu 20.04, RHEL 8 and what came later. A wheel may count on GCC 8's library.
LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
ADDED = {
    "__isoc23_strtol", "__isoc23_strtoul", "__isoc23_strtoll", "__isoc23_strtoull", "__isoc23_sscanf", "__cxa_call_terminate",
    "__libc_single_threaded", "stat", "lstat", "fstat", "pthread_getaffinity_np", "pthread_setaffinity_np", "pthread_attr_setaffinity_np",
    "_ZSt21ios_base_library_initv", "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE15_M_replace_coldEPcmPKcmm",
    "_ZSt28__throw_bad_array_new_lengthv", "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv", "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv",
    "_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev", "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev",
    "_ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1Ev", "_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv",
}
# std::filesystem, std::to_chars and std::from_chars
ADDED_FAMILIES = ("_ZNSt10filesystem", "_ZNKSt10filesystem", "_ZSt8to_chars", "_ZSt10from_chars")
# Math without the error handling of 1983, which nobody asks for, and what stood in libpthread and libdl before 2.34.
SAME = {
    "exp", "log", "log2", "pow", "fmod", "fmodf", "__libc_start_main", "dladdr", "dlclose", "dlerror", "dlopen", "dlsym", "dlvsym", "pthread_attr_getstack",
    "pthread_attr_getstacksize", "pthread_attr_setstacksize", "pthread_create", "pthread_detach", "pthread_getattr_np", "pthread_getspecific",
    "pthread_join", "pthread_key_create", "pthread_key_delete", "pthread_mutexattr_destroy", "pthread_mutexattr_init", "pthread_mutexattr_settype",
    "pthread_once", "pthread_rwlock_destroy", "pthread_rwlock_init", "pthread_rwlock_rdlock", "pthread_rwlock_unlock", "pthread_rwlock_wrlock",
    "pthread_setspecific", "pthread_sigmask",
}
# What a file asks for instead. Every function of SAME is there in this version, and what is added fits any.
OLD = {"GLIBC": "GLIBC_2.2.5", "GLIBCXX": "GLIBCXX_3.4", "CXXABI": "CXXABI_1.3", "GCC": "GCC_3.0"}
STB_GLOBAL, STB_GNU_UNIQUE = 1, 10


def is_newer(version):
    family, _, number = version.partition("_")
    digits = number.split(".")
    # Names without a number (GLIBC_ABI_DT_RELR) are features that only new libraries have.
    return family in LIMITS and (not all(d.isdigit() for d in digits) or tuple(map(int, digits)) > LIMITS[family])


def is_added(name):
    return name in ADDED or name.startswith(ADDED_FAMILIES)


def elf_hash(name):
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value ^= (value >> 24) & 0xF0
        value &= 0x0FFFFFFF
    return value


class Library:
    """An ELF file of x86-64: its sections of dynamic symbols and their versions."""

    def __init__(self, data):
        self.data = bytearray(data)
        offset, = struct.unpack_from("<Q", data, 40)
        size, count, names_index = struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
        names = headers[names_index][4]
        self.sections = {self.text(names + h[0]): (h[4], h[5]) for h in headers}  # {name: (offset, bytes)}

    def text(self, at):
        return self.data[at:self.data.index(0, at)].decode()

    def string(self, at):
        return self.text(self.sections[".dynstr"][0] + at)

    def needs(self):
        """(index of the version, its name, where the entry is), for each version that the file asks for."""
        at = self.sections[".gnu.version_r"][0] if ".gnu.version_r" in self.sections else None
        while at is not None:
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.data, entry)
                yield index, self.string(name), entry
                entry += step
            at = at + following if following else None

    def symbols(self):
        """(index of the version, name, where the symbol is, whether it is defined here)"""
        start, size = self.sections[".dynsym"]
        versions = self.sections[".gnu.version"][0] if ".gnu.version" in self.sections else None
        for i in range(size // 24):
            name, _, _, section = struct.unpack_from("<IBBH", self.data, start + i * 24)
            index = struct.unpack_from("<H", self.data, versions + 2 * i)[0] & 0x7FFF if versions else 1
            yield index, self.string(name), start + i * 24, section != 0

    def newer(self):
        """{function that is newer than LIMITS: version}; a version that no function asks for by name counts as one."""
        versions = {index: version for index, version, _ in self.needs() if is_newer(version)}
        found = {name: versions[index] for index, name, _, _ in self.symbols() if index in versions}
        return found | {version: version for version in versions.values() if version not in found.values()}

    def make_older(self):
        strings, size = self.sections[".dynstr"]
        for _, version, entry in list(self.needs()):
            if is_newer(version):
                old = OLD[version.partition("_")[0]]
                at = self.data.find(b"\0" + old.encode() + b"\0", strings, strings + size)
                if at < 0:
                    raise ValueError(f"the file never names {old}, which would stand for {version}: name another version in OLD")
                struct.pack_into("<I", self.data, entry, elf_hash(old))
                struct.pack_into("<I", self.data, entry + 8, at + 1 - strings)

    def keep_to_itself(self):
        """A unique symbol is one for the whole process, even if two libraries have different code for it: another protobuf or another octavo."""
        for _, _, at, is_here in self.symbols():
            if is_here and self.data[at + 4] >> 4 == STB_GNU_UNIQUE:
                self.data[at + 4] = STB_GLOBAL << 4 | self.data[at + 4] & 15


    def defined(self):
        return {name for _, name, _, is_here in self.symbols() if is_here}


def version_script(libraries):
    wanted = {name for library in libraries for name in library.newer() if is_added(name)}
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in sorted(wanted)) + "  local: *;\n};\n"


def main():
    command, *names = sys.argv[1:]
    paths = [pathlib.Path(name) for name in names]
    libraries = [Library(path.read_bytes()) for path in paths]
    if command == "map":
        print(version_script(libraries), end="")
        return
    there = SAME | {name for name in libraries[0].defined() if is_added(name)}
    for path, library in zip(paths, libraries):
        unknown = {name: version for name, version in library.newer().items() if name not in there}
        if unknown:
            sys.exit(f"octavo: {path.name} uses what older systems lack: {unknown}; older.cc may define it")
        library.make_older()
        library.keep_to_itself()
        path.write_bytes(library.data)


if __name__ == "__main__":
    main()
