/* Runs a program with no more rights than a container gives its root by default: container PROGRAM
 * ARGUMENT...
 *
 * The capabilities are those that Docker leaves. Of the system calls that it refuses, the ones that
 * the tests use are refused here: namespaces, mounts, and personality, which fixes addresses. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int kept[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FSETID,      CAP_FOWNER,           CAP_MKNOD,
    CAP_SETGID, CAP_SETUID,       CAP_SETFCAP,     CAP_SETPCAP,          CAP_NET_RAW,
    CAP_KILL,   CAP_SYS_CHROOT,   CAP_AUDIT_WRITE, CAP_NET_BIND_SERVICE,
};

#define NAMESPACES                                                                                \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)
#define REFUSE(call) UNLESS(call, 1), FAIL(EPERM)

/* The arguments lie with the lower half first: this is for little-endian machines. */
static struct sock_filter filter[] = {
    FIELD(nr),
    REFUSE(SYS_unshare),
    REFUSE(SYS_setns),
    REFUSE(SYS_mount),
    REFUSE(SYS_umount2),
    REFUSE(SYS_pivot_root),
    UNLESS(SYS_clone3, 1), /* its flags lie in memory: the C library falls back to clone */
    FAIL(ENOSYS),
    UNLESS(SYS_personality, 4),
    FIELD(args[0]),
    UNLESS(0xffffffff, 1), /* only asks */
    ALLOW,
    FAIL(EPERM),
    UNLESS(SYS_clone, 3),
    FIELD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)NAMESPACES, 0, 1),
    FAIL(EPERM),
    ALLOW,
};

static void drop_capabilities(void) {
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++) {
        int keep = 0;
        for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
            keep |= kept[i] == capability;
        if (!keep && prctl(PR_CAPBSET_DROP, capability) < 0) {
            perror("container: cannot drop a capability");
            exit(125);
        }
    }
}

static void refuse_calls(void) {
    struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
        perror("container: cannot refuse system calls");
        exit(125);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: container PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    refuse_calls();
    drop_capabilities(); /* what is left in our own sets goes with the exec */
    execvp(argv[1], argv + 1);
    fprintf(stderr, "container: cannot run %s: %s\n", argv[1], strerror(errno));
    return 127;
}
