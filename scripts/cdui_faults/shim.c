/* Preloaded into the processes of one machine of a schedule. It adds the seconds in the file that
 * CDUI_FAULTS_CLOCK names to every wall clock that is read, and notes in the file that CDUI_FAULTS_SYNCED
 * names how much of which file has been synced: "inode size" a line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_s;
static const char *synced;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CDUI_FAULTS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        offset_s = mapped == MAP_FAILED ? NULL : mapped;
        close(file);
    }
    synced = getenv("CDUI_FAULTS_SYNCED");
}

static int64_t offset(void) { return offset_s ? *offset_s : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec read;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (out)
        *out = read.tv_sec;
    return read.tv_sec;
}

static int sync_noted(int file, long call) {
    struct stat before;
    int known = synced && fstat(file, &before) == 0 && S_ISREG(before.st_mode);
    int status = (int)syscall(call, file);
    if (status == 0 && known) {
        char line[64];
        int length = snprintf(line, sizeof line, "%llu %lld\n", (unsigned long long)before.st_ino,
                              (long long)before.st_size);
        int notes = open(synced, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (notes >= 0) {
            if (write(notes, line, (size_t)length) < 0) {
            }
            close(notes);
        }
    }
    return status;
}

int fsync(int file) { return sync_noted(file, SYS_fsync); }

int fdatasync(int file) { return sync_noted(file, SYS_fdatasync); }
