/* A disk that forgets, for one directory. Loaded before libc, it stands in for fsync and fdatasync.
 *
 * STANDFAST_TEST_DISK_DIR     the directory it is about (real path)
 * STANDFAST_TEST_DISK_IMAGE   where it keeps what is on the platter: one file per file, written only by a sync.
 *                             After a power loss this is all there is.
 * STANDFAST_TEST_DISK_SYNC_US how long a sync takes
 *
 * A sync of the directory keeps the names in it, as "<image>/.names": a file that was never named there
 * did not survive, whatever was synced into it.
 *
 * disk_fail_next(suffix, nth) makes the nth sync from now on, of a file whose name ends so, fail with EIO.
 * A failed sync drops what it should have written, and the pages count as clean: later syncs write them only
 * if somebody has written to them since. "<image>/<name>.lost" has a byte for each page, 1 while it is lost.
 * As on Linux, every file that was open at the time is told of it once, in whatever process; who opens the file
 * later is told nothing. "<image>/<name>.errors" counts the failures.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static char fail_suffix[64];
static int fail_nth;

void disk_fail_next(const char *suffix, int nth)
{
    snprintf(fail_suffix, sizeof fail_suffix, "%s", suffix);
    fail_nth = nth;
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* 1 and the file's name ("" for the directory itself) if `fd` is in our directory and still linked. */
static int ours(int fd, char *name)
{
    char link[64], path[PATH_MAX];
    const char *dir = getenv("STANDFAST_TEST_DISK_DIR");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (!dir || n < 0)
        return 0;
    path[n] = 0;
    size_t length = strlen(dir);
    if (strncmp(path, dir, length) || (path[length] && path[length] != '/') || ends_with(path, " (deleted)"))
        return 0;
    snprintf(name, NAME_MAX + 1, "%s", path[length] ? path + length + 1 : "");
    return 1;
}

static ssize_t real_pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    return real(fd, bytes, count, at);
}

#define FDS_MAX 4096

static unsigned told[FDS_MAX]; /* of how many failures each open file has heard */

static unsigned failures(const char *name, unsigned add)
{
    char path[PATH_MAX];
    unsigned count = 0;
    const char *image = getenv("STANDFAST_TEST_DISK_IMAGE");
    if (!image)
        return 0;
    snprintf(path, sizeof path, "%s/%s.errors", image, name);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | (add ? O_CREAT : 0), 0600);
    if (fd < 0)
        return 0;
    if (pread(fd, &count, sizeof count, 0) < 0)
        abort();
    count += add;
    if (add && real_pwrite(fd, &count, sizeof count, 0) < 0)
        abort();
    close(fd);
    return count;
}

static int opened(int fd)
{
    char name[NAME_MAX + 1];
    if (fd >= 0 && fd < FDS_MAX)
        told[fd] = ours(fd, name) && *name ? failures(name, 0) : 0;
    return fd;
}

#define OPEN(function)                                                                                       \
    int function(const char *path, int flags, ...)                                                           \
    {                                                                                                        \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                    \
        va_end(rest);                                                                                        \
        return opened((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode));                                \
    }

#define OPENAT(function)                                                                                     \
    int function(int directory, const char *path, int flags, ...)                                            \
    {                                                                                                        \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                    \
        va_end(rest);                                                                                        \
        return opened((int)syscall(SYS_openat, directory, path, flags, mode));                               \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static int lock_image(const char *image)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.lock", image);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(fd, LOCK_EX);
    return fd;
}

/* Copy to the image what a sync writes: every page that is not lost. */
static void copy(int from, const char *to, const char *lost)
{
    char fresh[PATH_MAX + 32], page[PAGE];
    struct stat size;
    snprintf(fresh, sizeof fresh, "%s.tmp", to);
    int old = open(to, O_RDONLY | O_CLOEXEC), gone = open(lost, O_RDONLY | O_CLOEXEC);
    int out = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fstat(from, &size);
    for (off_t at = 0; at < size.st_size; at += PAGE) {
        char is_lost = 0;
        if (gone >= 0 && pread(gone, &is_lost, 1, at / PAGE) < 0)
            abort();
        ssize_t n = is_lost ? (old < 0 ? 0 : pread(old, page, PAGE, at)) : pread(from, page, PAGE, at);
        if (n > 0 && real_pwrite(out, page, n, at) != n)
            abort();
    }
    if (gone >= 0 && ftruncate(out, size.st_size)) /* lost pages at the end are holes */
        abort();
    close(out);
    if (old >= 0)
        close(old);
    if (gone >= 0)
        close(gone);
    rename(fresh, to);
}

/* A sync failed: each page that is not on the platter as it is now will not get there by itself. */
static void lose(int from, const char *to, const char *lost)
{
    char now[PAGE], platter[PAGE], yes = 1;
    int old = open(to, O_RDONLY | O_CLOEXEC), gone = open(lost, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ssize_t n;
    for (off_t at = 0; (n = pread(from, now, PAGE, at)) > 0; at += PAGE)
        if (old < 0 || pread(old, platter, PAGE, at) != n || memcmp(now, platter, n))
            if (real_pwrite(gone, &yes, 1, at / PAGE) != 1)
                abort();
    close(gone);
    if (old >= 0)
        close(old);
}

static void keep_names(const char *image)
{
    char path[PATH_MAX], fresh[PATH_MAX + 8];
    const char *dir = getenv("STANDFAST_TEST_DISK_DIR");
    snprintf(path, sizeof path, "%s/.names", image);
    snprintf(fresh, sizeof fresh, "%s.tmp", path);
    FILE *names = fopen(fresh, "w");
    DIR *listing = opendir(dir);
    for (struct dirent *entry; (entry = readdir(listing));)
        fprintf(names, "%s\n", entry->d_name);
    closedir(listing);
    fclose(names);
    rename(fresh, path);
}

static void write_down(int fd, const char *name, int fails)
{
    char to[PATH_MAX], lost[PATH_MAX + 8];
    const char *image = getenv("STANDFAST_TEST_DISK_IMAGE");
    if (!image)
        return;
    int lock = lock_image(image);
    snprintf(to, sizeof to, "%s/%s", image, name);
    snprintf(lost, sizeof lost, "%s.lost", to);
    if (!*name)
        keep_names(image);
    else if (fails)
        lose(fd, to, lost);
    else
        copy(fd, to, lost);
    close(lock);
}

static int sync_to_image(int fd)
{
    char name[NAME_MAX + 1];
    const char *us = getenv("STANDFAST_TEST_DISK_SYNC_US");
    if (!ours(fd, name))
        return 0;
    int fails = fail_nth && ends_with(name, fail_suffix) && --fail_nth == 0;
    write_down(fd, name, fails);
    unsigned count = failures(name, fails ? 1 : 0);
    if (*name && fd < FDS_MAX && count > told[fd]) {
        told[fd] = count;
        fails = 1;
    }
    if (us) {
        struct timespec pause = {atol(us) / 1000000, atol(us) % 1000000 * 1000};
        nanosleep(&pause, 0);
    }
    if (fails)
        errno = EIO;
    return fails ? -1 : 0;
}

int fsync(int fd)
{
    return sync_to_image(fd);
}

int fdatasync(int fd)
{
    return sync_to_image(fd);
}

/* A page that is written again is dirty again, whatever is in it. */
static void not_lost(int fd, size_t count, off_t at)
{
    char name[NAME_MAX + 1], lost[PATH_MAX], no = 0;
    const char *image = getenv("STANDFAST_TEST_DISK_IMAGE");
    if (!image || !ours(fd, name) || !*name)
        return;
    snprintf(lost, sizeof lost, "%s/%s.lost", image, name);
    int gone = open(lost, O_RDWR | O_CLOEXEC);
    if (gone < 0)
        return;
    for (off_t page = at / PAGE; page <= (off_t)(at + count - 1) / PAGE; page++)
        if (real_pwrite(gone, &no, 1, page) != 1)
            abort();
    close(gone);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    ssize_t n = real_pwrite(fd, bytes, count, at);
    if (n > 0)
        not_lost(fd, n, at);
    return n;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at)
{
    return pwrite(fd, bytes, count, at);
}
