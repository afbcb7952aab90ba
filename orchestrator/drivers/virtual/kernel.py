"""The kernel of the guest: user-mode Linux with time travel, built from the source of the host's distribution.

User-mode Linux is a program of an ordinary user (docs.kernel.org/virt/uml). With UML_TIME_TRAVEL_SUPPORT its clock does
not follow the host's: while no process can run, it jumps to the next timer. Debian's own package of it,
user-mode-linux, lacks this option.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import orchestrator
from node.resources import processors
from orchestrator.errors import HostError
from orchestrator.planning.learning.dataset import cache_directory

CONFIGURATION = Path(orchestrator.__file__).parent / "verbs" / "images" / "kernel" / "config"
SOURCES = Path("/usr/src")
PACKAGE = "edgebed_kernel"
"""A package with a built kernel, see `images/kernel`. No registry has it yet."""

TOOLS = {
    "make": "make",
    "gcc": "gcc",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "tar": "tar",
    "xz": "xz-utils",
}
"""The commands that build the kernel, and the package of each in Debian and Ubuntu."""

INSTALL = f"apt-get install linux-source libc6-dev {' '.join(TOOLS.values())}"
BUILD = "edgebed kernel build"
ROOM = 3_000_000_000  # bytes that the unpacked source and the built files take

_VERSION = re.compile(r"linux-source-([\d.]+)\.tar\.(xz|bz2|gz|zst)$")
_CHANGES = (
    # Timers of 4 ms, as in the kernels of distributions: TCP counts its timeouts in them.
    ("arch/um/Kconfig", "default 100", "default 250"),
    # Room for all registers of processors with AMX, which the guest's kernel hands back as a whole (ptrace(2)).
    ("arch/x86/um/user-offsets.c", "DEFINE_LONGS(HOST_FP_SIZE, 2696);", "DEFINE_LONGS(HOST_FP_SIZE, 12288);"),
    # Random numbers that follow from a seed, so that runs can be equal. Without a seed they are the host's.
    (
        "arch/um/os-Linux/util.c",
        "return getrandom(buf, len, flags);",
        """static unsigned long long state, drawn;
	const char *seed = getenv("EDGEBED_RANDOM_SEED");
	size_t place;

	if (!seed)
		return getrandom(buf, len, flags);
	if (!drawn)
		state = strtoull(seed, NULL, 10);
	for (place = 0; place < len; place++) {
		if (drawn++ % 8 == 0)
			state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		((unsigned char *)buf)[place] = state >> 33;
		state ^= state >> 29;
	}
	return len;""",
    ),
    # The processor's counter follows the guest's clock, in nanoseconds: libzmq, for one, reads the time by it.
    (
        "arch/um/os-Linux/skas/process.c",
        "#include <sys/mman.h>",
        "#include <sys/mman.h>\n#include <sys/prctl.h>",
    ),
    (
        "arch/um/os-Linux/skas/process.c",
        "ptrace(PTRACE_TRACEME, 0, 0, 0);",
        "ptrace(PTRACE_TRACEME, 0, 0, 0);\n\tprctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);",
    ),
    (
        "arch/um/kernel/trap.c",
        "void segv_handler(int sig, struct siginfo *unused_si, struct uml_pt_regs *regs)\n{",
        """static int reads_counter(struct uml_pt_regs *regs)
{
	unsigned char code[3] = { 0 };
	unsigned long ip = UPT_IP(regs);
	unsigned long length = 2;
	u64 now;

	if (copy_from_user(code, (void __user *) ip, 2) || code[0] != 0x0f)
		return 0;
	if (code[1] == 0x01) {
		if (copy_from_user(code, (void __user *) ip, 3) || code[2] != 0xf9)
			return 0;
		length = 3;
		UPT_CX(regs) = 0;
	} else if (code[1] != 0x31) {
		return 0;
	}
	now = ktime_get_ns();
	UPT_AX(regs) = now & 0xffffffff;
	UPT_DX(regs) = now >> 32;
	UPT_IP(regs) = ip + length;
	return 1;
}

void segv_handler(int sig, struct siginfo *unused_si, struct uml_pt_regs *regs)
{
	if (UPT_IS_USER(regs) && UPT_FAULTINFO(regs)->trap_no == 13 && reads_counter(regs))
		return;
""",
    ),
)
"""What is changed in the source: file, text, its replacement."""

STUB = CONFIGURATION.with_name("stub.c")
_FASTER_SINCE = (6, 11)  # earlier kernels have other stubs, and keep them
_FASTER = (
    ("arch/um/os-Linux/skas/Makefile", "obj-y := mem.o process.o", "obj-y := mem.o process.o stub.o"),
    (
        "arch/um/os-Linux/skas/process.c",
        "int start_userspace(unsigned long stub_stack)",
        "static int __attribute__((unused)) start_traced(unsigned long stub_stack)",
    ),
    (
        "arch/um/os-Linux/skas/process.c",
        "void userspace(struct uml_pt_regs *regs, unsigned long *aux_fp_regs)",
        "static void __attribute__((unused)) run_traced(struct uml_pt_regs *regs, unsigned long *aux_fp_regs)",
    ),
    (
        "arch/um/os-Linux/skas/mem.c",
        "static inline long do_syscall_stub(struct mm_id *mm_idp)",
        """long do_syscall_stub(struct mm_id *mm_idp);

static inline long __attribute__((unused)) do_syscall_traced(struct mm_id *mm_idp)""",
    ),
    ("arch/um/include/shared/as-layout.h", "#define STUB_DATA_PAGES 2", "#define STUB_DATA_PAGES 4"),
    (
        "arch/um/include/shared/skas/stub-data.h",
        "struct stub_data {\n\tunsigned long offset;",
        """/* um_vdso.c has the same. In nanoseconds, at the time at which the process continued. */
struct stub_clock {
	unsigned long long monotonic, real;
	unsigned long reads;
};

void set_stub_clock(struct stub_clock *clock);
void take_stub_reads(struct stub_clock *clock);

struct stub_data {
	struct stub_clock clock;
	unsigned long offset;""",
    ),
    (
        "arch/um/include/shared/skas/stub-data.h",
        "long err, child_err;",
        """long err, child_err;

	enum { STUB_STOPPED, STUB_RUNS } turn;
	int signal, stays, sets_bases;
	unsigned long info, context, key, fs_base, gs_base;""",
    ),
    (
        "arch/um/include/shared/skas/stub-data.h",
        "UM_KERN_PAGE_SIZE - 128)",
        "UM_KERN_PAGE_SIZE - 256)",
    ),
    (
        "arch/um/include/shared/skas/stub-data.h",
        "sigstack[UM_KERN_PAGE_SIZE]",
        "sigstack[(STUB_DATA_PAGES - 1) * UM_KERN_PAGE_SIZE]",
    ),
    (
        "arch/x86/um/shared/sysdep/stub.h",
        "extern void stub_syscall_handler(void);",
        """extern void stub_syscall_handler(void);
extern void stub_stop(int, siginfo_t *, void *);
extern void stub_return(void);""",
    ),
    (
        "arch/um/kernel/skas/stub.c",
        "#include <sysdep/stub.h>",
        """#include <sysdep/stub.h>

/* The key is in no other register and not on the stack, which the process can read later. */
static __always_inline long with_key(struct stub_data *d, long number, struct stub_syscall *sc, unsigned long flags)
{
	register unsigned long fd asm("r8") = sc->mem.fd;
	register unsigned long offset asm("r9") = sc->mem.offset;
	long result;

	asm volatile ("movq %[key], %%r10; orq %[flags], %%r10; syscall; xorl %%r10d, %%r10d"
		: "=a" (result)
		: "0" (number), "D" (sc->mem.addr), "S" (sc->mem.length), "d" ((long) sc->mem.prot),
		"r" (fd), "r" (offset), [key] "m" (d->key), [flags] "r" (flags)
		: "rcx", "r11", "r10", "memory");
	return result;
}""",
    ),
    (
        "arch/um/kernel/skas/stub.c",
        "res = stub_syscall6(STUB_MMAP_NR,\n"
        "\t\t\t\t\t    sc->mem.addr, sc->mem.length,\n"
        "\t\t\t\t\t    sc->mem.prot,\n"
        "\t\t\t\t\t    MAP_SHARED | MAP_FIXED,\n"
        "\t\t\t\t\t    sc->mem.fd, sc->mem.offset);",
        "res = with_key(d, STUB_MMAP_NR, sc, MAP_SHARED | MAP_FIXED |\n"
        "\t\t\t\t       (sc->mem.length <= 16 * UM_KERN_PAGE_SIZE ? MAP_POPULATE : 0));",
    ),
    (
        "arch/um/kernel/skas/stub.c",
        "res = stub_syscall3(__NR_mprotect,\n\t\t\t\t\t    sc->mem.addr, sc->mem.length,\n\t\t\t\t\t    sc->mem.prot);",
        "res = with_key(d, __NR_mprotect, sc, 0);",
    ),
    (
        "arch/um/kernel/skas/stub.c",
        """void __section(".__syscall_stub")
stub_syscall_handler(void)""",
        """void __section(".__syscall_stub")
stub_stop(int signal, siginfo_t *info, void *context)
{
	struct stub_data *d = get_stub_data();
	volatile int *turn = (volatile int *) &d->turn;
	int failed;

	d->signal = signal;
	d->info = (unsigned long) info;
	d->context = (unsigned long) context;
	do {
		__atomic_store_n(turn, STUB_STOPPED, __ATOMIC_SEQ_CST);
		stub_syscall3(__NR_futex, (unsigned long) turn, 1 /* FUTEX_WAKE */, 1);
		while (*turn == STUB_STOPPED)
			stub_syscall4(__NR_futex, (unsigned long) turn, 0 /* FUTEX_WAIT */, STUB_STOPPED, 0);
		failed = syscall_handler(d);
		d->key = 0;
	} while (failed || d->stays);
	if (d->sets_bases) {
		stub_syscall2(__NR_arch_prctl, 0x1002 /* ARCH_SET_FS */, d->fs_base);
		stub_syscall2(__NR_arch_prctl, 0x1001 /* ARCH_SET_GS */, d->gs_base);
	}
}

void __section(".__syscall_stub") __attribute__((naked))
stub_return(void)
{
	asm volatile ("movq %0, %%rax; syscall" : : "i" (__NR_rt_sigreturn));
}

void __section(".__syscall_stub")
stub_syscall_handler(void)""",
    ),
    # A process reads its clocks without a system call. Each reading takes as long as one with a call, and after 64 of
    # them comes one with a call: the clock of a process that waits in a loop must reach the next timer.
    (
        "arch/um/kernel/time.c",
        "static struct clocksource timer_clocksource = {",
        """#define STUB_READS 64

void set_stub_clock(struct stub_clock *clock)
{
	unsigned long flags;

	local_irq_save(flags); /* so that this takes no time, see timer_read */
	clock->monotonic = ktime_get_ns();
	clock->real = ktime_get_real_ns();
	local_irq_restore(flags);
	clock->reads = 0;
}

void take_stub_reads(struct stub_clock *clock)
{
	unsigned long reads = min_t(unsigned long, clock->reads, STUB_READS);

	if (reads)
		time_travel_update_time_rel(reads * TIMER_MULTIPLIER);
}

static struct clocksource timer_clocksource = {""",
    ),
    ("arch/um/kernel/time.c", "#include <shared/init.h>", "#include <shared/init.h>\n#include <stub-data.h>"),
    (
        "arch/x86/um/vdso/um_vdso.c",
        "int __vdso_clock_gettime(clockid_t clock, struct __kernel_old_timespec *ts)\n{\n\tlong ret;\n",
        """#define STUB_CLOCK ((volatile struct stub_clock *) 0x7fc0000000UL) /* STUB_DATA, see stub.c */
#define STUB_READS 64
#define READING 256 /* TIMER_MULTIPLIER */

struct stub_clock {
	unsigned long long monotonic, real;
	unsigned long reads;
};

int __vdso_clock_gettime(clockid_t clock, struct __kernel_old_timespec *ts)
{
	long ret;

	if ((clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME) && STUB_CLOCK->reads < STUB_READS) {
		unsigned long long now = clock == CLOCK_MONOTONIC ? STUB_CLOCK->monotonic : STUB_CLOCK->real;

		STUB_CLOCK->reads++;
		now += READING * STUB_CLOCK->reads;
		ts->tv_sec = now / 1000000000;
		ts->tv_nsec = now % 1000000000;
		return 0;
	}
""",
    ),
    # A process that writes to one new page after the other gets some more with each page fault.
    (
        "arch/um/kernel/trap.c",
        """/*
 * Note this is constrained to return 0, -EFAULT, -EACCES, -ENOMEM by""",
        """#define FOLLOWING (16 * PAGE_SIZE)

static void map_following(struct vm_area_struct *vma, unsigned long address)
{
	unsigned long at = address & PAGE_MASK;
	unsigned long end = min(vma->vm_end, ALIGN(at + 1, FOLLOWING));
	pte_t *pte = pte_offset_kernel(pmd_off(vma->vm_mm, at), at);

	if (at == vma->vm_start || !(at & ~PMD_MASK) || !pte_present(pte[-1]))
		return;
	for (at += PAGE_SIZE, pte++; at < end && pte_none(*pte); at += PAGE_SIZE, pte++) {
		if (handle_mm_fault(vma, at, FAULT_FLAG_WRITE | FAULT_FLAG_USER, NULL) & VM_FAULT_ERROR)
			return;
	}
}

/*
 * Note this is constrained to return 0, -EFAULT, -EACCES, -ENOMEM by""",
    ),
    (
        "arch/um/kernel/trap.c",
        """	} while (!pte_present(*pte));
	err = 0;
""",
        """	} while (!pte_present(*pte));
	err = 0;
	if (is_write && is_user && vma_is_anonymous(vma))
		map_following(vma, address);
""",
    ),
    # What ptrace(2) in the guest and core dumps see of the floating-point registers.
    (
        "arch/x86/um/ptrace_64.c",
        "err = save_i387_registers(userspace_pid[cpu],\n\t\t\t\t  (unsigned long *) &fpregs);",
        """err = 0;
	memcpy(&fpregs, child->thread.regs.regs.fp, sizeof(fpregs));""",
    ),
    (
        "arch/x86/um/ptrace_64.c",
        "return restore_i387_registers(userspace_pid[cpu],\n\t\t\t\t      (unsigned long *) &fpregs);",
        """memcpy(child->thread.regs.regs.fp, &fpregs, sizeof(fpregs));
	return 0;""",
    ),
    (
        "arch/um/kernel/process.c",
        "return save_i387_registers(userspace_pid[cpu], (unsigned long *) fpu) == 0;",
        """memcpy(fpu, t->thread.regs.regs.fp, sizeof(*fpu));
	return 1;""",
    ),
    # A page fault in a mapped file maps what is loaded of the file around it, up to 1 MB.
    ("mm/memory.c", "65536 >> PAGE_SHIFT;", "1048576 >> PAGE_SHIFT;"),
    # Whether the user may search a directory of the host's, the host finds out when something in it is opened.
    (
        "fs/hostfs/hostfs_kern.c",
        """	if (desired & MAY_NOT_BLOCK)
		return -ECHILD;
""",
        """	if (S_ISDIR(ino->i_mode) && !(desired & (MAY_READ | MAY_WRITE)))
		return generic_permission(&nop_mnt_idmap, ino, desired);

	if (desired & MAY_NOT_BLOCK)
		return -ECHILD;
""",
    ),
)
"""What makes the guest's processes faster. For their system calls and page faults, see `stub.c`."""

Tell = Callable[[str], object]


def fingerprint() -> str:
    """What a built kernel depends on, besides its source: the configuration, and the changes of the source."""
    digest = hashlib.sha256(CONFIGURATION.read_bytes())
    digest.update(STUB.read_bytes())
    for change in (*_CHANGES, *_FASTER):
        digest.update("\0".join(change).encode())
    return digest.hexdigest()[:12]


def built_kernel() -> Path | None:
    """The kernel that guests boot: of the package with a built one, otherwise the newest that `build` has made for this
    version of edgebed. None if there is neither."""
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "linux"
    if not CONFIGURATION.is_file():  # in an image of edgebed
        return None
    ending = f"-{fingerprint()}"
    kernels = []
    for folder in cache().glob(f"*{ending}"):
        if (folder / "linux").is_file():
            version = _as_numbers(folder.name.removesuffix(ending))
            kernels.append((version, folder / "linux"))
    if not kernels:
        return None
    _, newest = max(kernels)
    return newest


def needed_kernel() -> Path:
    """As `built_kernel`. HostError with the remedy if there is none."""
    kernel = built_kernel()
    if kernel is not None:
        return kernel
    raise HostError("this host has no kernel for virtual time", "build it, in some minutes", [BUILD])


def build(tell: Tell) -> Path:
    """Build the kernel from the newest source that is installed, unless it is built already. HostError if something is
    missing for it, or if it fails; the log is then kept."""
    source, version = newest_source()
    folder = cache() / f"{version}-{fingerprint()}"
    kernel = folder / "linux"
    if kernel.is_file():
        return kernel
    _require_tools()
    folder.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder.parent).free < ROOM:
        raise HostError(f"{folder.parent} has too little room for the kernel's source", "make 3 GB free")
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent) as place:
        work = Path(place)
        log = folder.parent / "build.log"
        with log.open("w") as output:
            tell(f"unpacking {source}")
            _execute(["tar", "--extract", "--strip-components=1", f"--directory={work}", f"--file={source}"], output)
            _change(work, _CHANGES)
            if _as_numbers(version) >= _FASTER_SINCE:
                _change(work, _FASTER)
                shutil.copy(STUB, work / "arch/um/os-Linux/skas")
            tell(f"building Linux {version} for user mode: some minutes of a processor")
            make = ["make", "ARCH=um", f"--directory={work}", f"--jobs={processors()}"]
            _execute([*make, f"KCONFIG_ALLCONFIG={CONFIGURATION.resolve()}", "allnoconfig"], output)
            _require_options(work / ".config")
            _execute([*make, "linux"], output)
        folder.mkdir(exist_ok=True)
        part = folder / f"linux.{os.getpid()}"
        shutil.copy(work / "linux", part)
        part.replace(kernel)
    log.unlink()
    return kernel


def cache() -> Path:
    """The folder of built kernels."""
    return cache_directory() / "kernel"


def _as_numbers(version: str) -> tuple[int, ...]:
    """A version that sorts: 6.12 is newer than 6.9."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def newest_source() -> tuple[Path, str]:
    """The newest source of the kernel among the packages of this host, and its version. HostError if there is none, or
    if no kernel can be built here; the latter names no commands."""
    machine = platform.machine()
    if machine != "x86_64":
        raise HostError(f"Linux has no user mode for {machine}", "use a host with x86_64, or `--driver sim`")
    if not CONFIGURATION.is_file():
        raise HostError(f"{CONFIGURATION} is missing, as in images of edgebed", "run edgebed outside a container")
    sources = []
    for file in SOURCES.glob("linux-source-*.tar.*"):
        match = _VERSION.search(file.name)
        if match is not None:
            sources.append((_as_numbers(match[1]), file, match[1]))
    if not sources:
        raise HostError(
            f"there is no source of the kernel in {SOURCES}", "install it, with what builds it, as root", [INSTALL]
        )
    _, newest, version = max(sources)
    return newest, version


def _require_tools() -> None:
    """HostError if this host lacks a command that builds the kernel."""
    missing = []
    for command, package in TOOLS.items():
        if shutil.which(command) is None:
            missing.append(package)
    if missing:
        packages = " ".join(missing)
        raise HostError(
            f"to build the kernel, {packages} is missing", "install it as root", [f"apt-get install {packages}"]
        )


def _change(source: Path, changes: Iterable[tuple[str, str, str]]) -> None:
    """Make changes of the source. HostError if it does not have the texts that are replaced."""
    for name, text, replacement in changes:
        file = source / name
        content = file.read_text()
        if text not in content:
            raise HostError(f"{name} of this kernel has no {text!r}", "use the source of Linux 6.1 to 6.12")
        file.write_text(content.replace(text, replacement, 1))


def _require_options(configuration: Path) -> None:
    """HostError if this kernel has not all that the configuration switches on: it may lack an option, or something that
    an option depends on."""
    chosen = configuration.read_text().splitlines()
    missing = []
    for line in CONFIGURATION.read_text().splitlines():
        if line.endswith("=y") and line not in chosen:
            missing.append(line.removesuffix("=y"))
    missing = [option for option in missing if option not in _OPTIONAL]
    if missing:
        raise HostError(f"this kernel's source lacks {', '.join(missing)}", "use the source of Linux 6.1 to 6.12")


_OPTIONAL = {"CONFIG_SLUB_TINY", "CONFIG_CGROUP_CPUACCT"}
"""Options that not every version has, and without which all works."""


def _execute(command: list[str], output: IO[str]) -> None:
    """Execute a command, with its output in a log. HostError if it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        log = output.name
        lines = Path(log).read_text(errors="replace").splitlines()
        last = lines[-1] if lines else "no output"
        raise HostError(f"`{command[0]}` failed while the kernel was built ({last})", f"see {log}")
