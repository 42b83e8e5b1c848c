/* Makes the FAIL_AT-th write, rename, open-for-writing or mkdir below FAIL_UNDER fail as on a full disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long seen = 0;

static int full(void) {
    const char *at = getenv("FAIL_AT");
    seen += 1;
    if (at == NULL) return 0;
    if (seen < atol(at)) return 0;
    errno = ENOSPC; /* once full it stays full */
    return 1;
}

static int below(const char *path) {
    const char *under = getenv("FAIL_UNDER");
    return under != NULL && path != NULL && strncmp(path, under, strlen(under)) == 0;
}

static int below_handle(int handle) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

ssize_t write(int handle, const void *data, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (below_handle(handle) && full()) return -1;
    return real(handle, data, count);
}

ssize_t pwrite64(int handle, const void *data, size_t count, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    if (below_handle(handle) && full()) return -1;
    return real(handle, data, count, offset);
}

int rename(const char *old, const char *new) {
    static int (*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "rename");
    if (below(new) && full()) return -1;
    return real(old, new);
}

int mkdir(const char *path, mode_t mode) {
    static int (*real)(const char *, mode_t);
    if (!real) real = dlsym(RTLD_NEXT, "mkdir");
    if (below(path) && full()) return -1;
    return real(path, mode);
}

__attribute__((destructor)) static void report(void) {
    const char *count = getenv("FAIL_COUNT");
    if (count == NULL) return;
    FILE *file = fopen(count, "w");
    if (file) { fprintf(file, "%ld", seen); fclose(file); }
}
