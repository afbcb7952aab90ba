/*
 * How the guest's kernel runs its processes: each is a process of the host, the stub, whose signal handler stops at a
 * futex in memory that both share. A system call and a page fault so take one round trip without ptrace(2), and what
 * the kernel changes in the stub's memory is done on the way back.
 *
 * The stub can do no system call of the host but those of the page of code that the kernel maps into it (seccomp(2)).
 * Those that map memory must have a key that the stub holds only while it is stopped: otherwise a process of the guest
 * could jump there and take the guest's memory.
 */

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <as-layout.h>
#include <init.h>
#include <kern_util.h>
#include <mem.h>
#include <os.h>
#include <ptrace_user.h>
#include <registers.h>
#include <skas.h>
#include <stub-data.h>
#include <sysdep/mcontext.h>
#include <sysdep/stub.h>
#include <timetravel.h>
#include "../internal.h"

/* Of the floating-point registers in a signal's frame (asm/sigcontext.h) */
#define FP_MAGIC_AT 464
#define FP_FEATURES_AT 472
#define FP_BYTES_AT 480
#define FP_HEADER_AT 512
#define FP_LEGACY_BYTES 512

#define TRAP_FLAG 0x100

/* Where the vDSO reads the clocks */
#define CLOCK_PLACE 0x7fc0000000UL

extern char __syscall_stub_start[];
long do_syscall_stub(struct mm_id *id);

/* SIGALRM comes from the kernel, whose timer interrupts a process that computes (os_alarm_process). */
static const int stopping[] = { SIGSYS, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGALRM };

static unsigned int stub_key(void)
{
	static unsigned int key;

	while (!key) {
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			key = 0;
	}
	return key;
}

static unsigned long in_stub(void *function)
{
	return STUB_CODE + (unsigned long) function - (unsigned long) __syscall_stub_start;
}

static void require(int done, const char *what)
{
	if (done)
		return;
	os_info("a process of the guest cannot start: %s failed, errno = %d\n", what, errno);
	_exit(1);
}

static void confine(void)
{
	unsigned int from = STUB_CODE;
	unsigned int high = STUB_CODE >> 32;
	struct sock_filter instructions[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 14),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 12),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, from, 0, 10),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, from + UM_KERN_PAGE_SIZE, 9, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_futex, 8, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigreturn, 7, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_arch_prctl, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_munmap, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3]) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, stub_key(), 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(instructions) / sizeof(*instructions), instructions };
	long err;

	require(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
	err = syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter);
	require(!err, "seccomp");
}

static int start_stub(void *stack)
{
	struct sigaction action;
	unsigned long long offset;
	void *place;
	int fd;
	int i;

	os_set_pdeathsig();
	signal(SIGTERM, SIG_DFL);
	signal(SIGWINCH, SIG_IGN);
	signal(SIGALRM, SIG_IGN); /* in virtual time for good: computing takes none, so nothing interrupts it */
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);

	fd = phys_mapping(uml_to_phys(__syscall_stub_start), &offset);
	place = mmap64((void *) STUB_CODE, UM_KERN_PAGE_SIZE, PROT_EXEC, MAP_FIXED | MAP_PRIVATE, fd, offset);
	require(place != MAP_FAILED, "mmap");
	fd = phys_mapping(uml_to_phys(stack), &offset);
	place = mmap64((void *) STUB_DATA, STUB_DATA_PAGES * UM_KERN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		       MAP_FIXED | MAP_SHARED, fd, offset);
	require(place != MAP_FAILED, "mmap");

	set_sigstack((void *) STUB_DATA, STUB_DATA_PAGES * UM_KERN_PAGE_SIZE);
	for (i = 0; i < sizeof(stopping) / sizeof(*stopping); i++) {
		/* not of libc, which has its own way back from a handler */
		struct {
			unsigned long handler, flags, restorer, mask;
		} kernel_action = {
			in_stub(stub_stop),
			SA_ONSTACK | SA_SIGINFO | 0x04000000 /* SA_RESTORER */,
			in_stub(stub_return),
			~0UL,
		};

		if (stopping[i] == SIGALRM && time_travel_mode == TT_MODE_INFCPU)
			continue;
		require(!syscall(__NR_rt_sigaction, stopping[i], &kernel_action, NULL, 8), "sigaction");
	}
	sigemptyset(&action.sa_mask);
	require(!sigprocmask(SIG_SETMASK, &action.sa_mask, NULL), "sigprocmask");
	confine();
	syscall(__NR_getpid); /* stops */
	_exit(1);
}

static int has_ended(int pid)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT))
		return errno == ECHILD;
	return info.si_pid == pid;
}

static int wait_until_stopped(struct stub_data *data, int pid)
{
	struct timespec second = { 1, 0 };

	while (__atomic_load_n(&data->turn, __ATOMIC_ACQUIRE) == STUB_RUNS) {
		if (!syscall(__NR_futex, &data->turn, FUTEX_WAIT, STUB_RUNS, &second, NULL, 0))
			continue;
		if (errno == ETIMEDOUT && has_ended(pid))
			return -ESRCH;
	}
	return 0;
}

/* Let the stub do what is to be done in its memory, and continue the process unless it is to stay. */
static int resume(struct mm_id *id, int stays)
{
	struct stub_data *data = (void *) id->stack;
	int err;

	data->syscall_data_len = id->syscall_data_len;
	data->key = id->syscall_data_len ? (unsigned long) stub_key() << 32 : 0;
	data->stays = stays;
	data->signal = 0;
	set_stub_clock(&data->clock);
	data->err = 0;
	__atomic_store_n(&data->turn, STUB_RUNS, __ATOMIC_SEQ_CST);
	syscall(__NR_futex, &data->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
	err = wait_until_stopped(data, id->pid);
	if (!err && data->err < 0) {
		syscall_stub_dump_error(id);
		err = data->err;
	}
	id->syscall_data_len = 0;
	take_stub_reads(&data->clock);
	return err;
}

long do_syscall_stub(struct mm_id *id)
{
	id->syscall_data_len = resume(id, 1); /* an error stays there for those who add more */
	return id->syscall_data_len;
}

int start_userspace(unsigned long stub_stack)
{
	struct stub_data *data = (void *) stub_stack;
	unsigned long bytes = 4 * UM_KERN_PAGE_SIZE;
	char *stack;
	int pid;
	int err;

	if (STUB_DATA != CLOCK_PLACE)
		panic("the data of stubs is at %lx", STUB_DATA);
	stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return -errno;
	data->turn = STUB_RUNS;
	data->fs_base = ~0UL;
	data->gs_base = ~0UL;
	stub_key(); /* the same for all */
	pid = clone(start_stub, stack + bytes, CLONE_FILES | SIGCHLD, (void *) stub_stack);
	err = pid < 0 ? -errno : wait_until_stopped(data, pid);
	munmap(stack, bytes);
	if (!err)
		return pid;
	printk(UM_KERN_ERR "%s : a process did not start, errno = %d\n", __func__, -err);
	if (pid > 0)
		os_kill_ptraced_process(pid, 1);
	return err;
}

/* A part of what kernel and stub share, by its address in the stub. The process may have changed that address. */
static void *shared(struct mm_id *id, unsigned long address, unsigned long bytes)
{
	unsigned long all = STUB_DATA_PAGES * UM_KERN_PAGE_SIZE;
	unsigned long offset = address - STUB_DATA;

	if (address < STUB_DATA || bytes > all || offset > all - bytes) {
		printk(UM_KERN_ERR "%s : the stub is damaged\n", __func__);
		fatal_sigsegv();
	}
	return (void *) (id->stack + offset);
}

static mcontext_t *frame(struct mm_id *id)
{
	struct stub_data *data = (void *) id->stack;
	ucontext_t *context = shared(id, data->context, sizeof(*context));

	return &context->uc_mcontext;
}

static char *fp_frame(struct mm_id *id, mcontext_t *mc, unsigned int *bytes)
{
	unsigned long address = (unsigned long) mc->fpregs;
	char *fp = shared(id, address, FP_LEGACY_BYTES);

	*bytes = FP_LEGACY_BYTES;
	if (*(unsigned int *) (fp + FP_MAGIC_AT) == 0x46505853 /* FP_XSTATE_MAGIC1 */)
		*bytes = *(unsigned int *) (fp + FP_BYTES_AT);
	if (*bytes < FP_LEGACY_BYTES || *bytes > FP_SIZE * sizeof(unsigned long))
		*bytes = FP_LEGACY_BYTES;
	return shared(id, address, *bytes);
}

static void put_registers(struct mm_id *id, struct uml_pt_regs *regs)
{
	static const unsigned char places[][2] = {
		{ REG_R8, HOST_R8 }, { REG_R9, HOST_R9 }, { REG_R10, HOST_R10 }, { REG_R11, HOST_R11 },
		{ REG_R12, HOST_R12 }, { REG_R13, HOST_R13 }, { REG_R14, HOST_R14 }, { REG_R15, HOST_R15 },
		{ REG_RDI, HOST_DI }, { REG_RSI, HOST_SI }, { REG_RBP, HOST_BP }, { REG_RBX, HOST_BX },
		{ REG_RDX, HOST_DX }, { REG_RAX, HOST_AX }, { REG_RCX, HOST_CX }, { REG_RSP, HOST_SP },
		{ REG_RIP, HOST_IP }, { REG_EFL, HOST_EFLAGS },
	};
	struct stub_data *data = (void *) id->stack;
	mcontext_t *mc = frame(id);
	unsigned int bytes;
	char *fp = fp_frame(id, mc, &bytes);
	char *from = (char *) regs->fp;
	unsigned long fs = regs->gp[HOST_FS_BASE];
	unsigned long gs = regs->gp[HOST_GS_BASE];
	int i;

	for (i = 0; i < sizeof(places) / sizeof(*places); i++)
		mc->gregs[places[i][0]] = regs->gp[places[i][1]];
	if (singlestepping())
		mc->gregs[REG_EFL] |= TRAP_FLAG;
	memcpy(fp, from, FP_MAGIC_AT);
	if (bytes > FP_HEADER_AT) {
		memcpy(fp + FP_HEADER_AT, from + FP_HEADER_AT, bytes - FP_HEADER_AT);
		*(unsigned long *) (fp + FP_HEADER_AT) &= *(unsigned long *) (fp + FP_FEATURES_AT);
	}
	data->sets_bases = fs != data->fs_base || gs != data->gs_base;
	data->fs_base = fs;
	data->gs_base = gs;
}

static void get_registers(struct mm_id *id, struct uml_pt_regs *regs)
{
	mcontext_t *mc = frame(id);
	unsigned int bytes;
	char *fp = fp_frame(id, mc, &bytes);

	get_regs_from_mc(regs, mc);
	regs->gp[HOST_EFLAGS] &= ~(unsigned long) TRAP_FLAG;
	memcpy(regs->fp, fp, bytes);
	GET_FAULTINFO_FROM_MC(regs->faultinfo, mc);
}

void userspace(struct uml_pt_regs *regs, unsigned long *aux_fp_regs)
{
	/* Handle any immediate reschedules or signals */
	interrupt_end();

	while (1) {
		struct mm_id *id = current_mm_id();
		struct stub_data *data = (void *) id->stack;
		siginfo_t si;
		int sig;
		int err;

		time_travel_print_bc_msg();
		current_mm_sync();
		put_registers(id, regs);
		err = id->syscall_data_len < 0 ? id->syscall_data_len : resume(id, 0);
		if (err) {
			if (err == -ENOMEM)
				report_enomem();
			printk(UM_KERN_ERR "%s - the stub failed: %d", __func__, -err);
			id->syscall_data_len = 0;
			fatal_sigsegv();
		}
		sig = data->signal;
		regs->is_user = 1;
		get_registers(id, regs);
		UPT_SYSCALL_NR(regs) = -1; /* Assume: It's not a syscall */

		switch (sig) {
		case SIGSYS:
			PT_SYSCALL_NR(regs->gp) = UPT_AX(regs);
			handle_syscall(regs);
			break;
		case SIGSEGV:
		case SIGTRAP:
			si = *(siginfo_t *) shared(id, data->info, sizeof(si));
			(*sig_info[sig])(sig, (struct siginfo *) &si, regs);
			break;
		case SIGILL:
		case SIGBUS:
		case SIGFPE:
			si = *(siginfo_t *) shared(id, data->info, sizeof(si));
			block_signals_trace();
			(*sig_info[sig])(sig, (struct siginfo *) &si, regs);
			unblock_signals_trace();
			break;
		case SIGALRM: /* the timer has been handled: see what runs next */
			break;
		default:
			printk(UM_KERN_ERR "%s - the stub stopped with signal %d\n", __func__, sig);
			fatal_sigsegv();
		}
		interrupt_end();

		/* Avoid -ERESTARTSYS handling in host */
		if (PT_SYSCALL_NR_OFFSET != PT_SYSCALL_RET_OFFSET)
			PT_SYSCALL_NR(regs->gp) = -1;
	}
}
