/* What Azure's HPC images set for every program and a rehearsed node cannot: locked memory without a limit
 * (azhpc-images, /etc/security/limits.conf), which only root of this machine may give, and a clock that a time
 * service keeps, of which this machine may have none. A node whose clock a fault made wrong has no such service.
 * Loaded by way of /etc/ld.so.preload. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

int getrlimit(enum __rlimit_resource which, struct rlimit *found) {
    int result = (int)syscall(SYS_prlimit64, 0, which, NULL, found);
    if (result == 0 && which == RLIMIT_MEMLOCK) found->rlim_cur = found->rlim_max = RLIM_INFINITY;
    return result;
}

int getrlimit64(enum __rlimit_resource which, struct rlimit64 *found) {
    return getrlimit(which, (struct rlimit *)found); /* the same on machines of 64 bits */
}

int adjtimex(struct timex *clock) {
    int result = (int)syscall(SYS_adjtimex, clock);
    if (result < 0) return result;
    if (access("/etc/rehearsal/clock", F_OK) == 0) {
        clock->status |= STA_UNSYNC;
        return TIME_ERROR;
    }
    clock->status &= ~STA_UNSYNC;
    return TIME_OK;
}
