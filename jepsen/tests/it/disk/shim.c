/* Loaded before the C library by the tests of failing disks: what FAULTY_DISK names a file for happens to every sync of a
   file below a folder `raft`, as long as the file says so: "hang" waits, "eio" fails, "slow N" takes N ms longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int concerned(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    return strstr(path, "/raft/") != NULL;
}

/* Nonzero: fail with EIO. */
static int fault(int fd) {
    const char *control = getenv("FAULTY_DISK");
    if (control == NULL || access(control, F_OK) != 0 || !concerned(fd)) return 0;
    for (;;) {
        char order[32] = "";
        int file = open(control, O_RDONLY | O_CLOEXEC);
        if (file < 0) return 0;
        ssize_t len = read(file, order, sizeof order - 1);
        close(file);
        if (len <= 0) return 0;
        if (strncmp(order, "eio", 3) == 0) return 1;
        if (strncmp(order, "slow ", 5) == 0) {
            usleep((useconds_t)atoi(order + 5) * 1000);
            return 0;
        }
        if (strncmp(order, "hang", 4) != 0) return 0;
        usleep(10000);
    }
}

static int forward(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (fault(fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fdatasync(int fd) { return forward("fdatasync", fd); }
int fsync(int fd) { return forward("fsync", fd); }
