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
 * A failed sync drops what it should have written, and the kernel reports that once: the pages count as
 * clean. Later syncs write only pages that were changed since. "<image>/<name>.clean" remembers which.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

static int lock_image(const char *image)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.lock", image);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(fd, LOCK_EX);
    return fd;
}

static void copy(int from, const char *to)
{
    char fresh[PATH_MAX + 32], page[PAGE];
    snprintf(fresh, sizeof fresh, "%s.tmp", to);
    int out = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    off_t at = 0;
    ssize_t n;
    while ((n = pread(from, page, PAGE, at)) > 0) {
        if (pwrite(out, page, n, at) != n)
            abort();
        at += n;
    }
    close(out);
    rename(fresh, to);
}

/* Pages that are as they were when a sync failed count as clean: they are not written. */
static void copy_changed(int from, const char *to, const char *clean)
{
    char fresh[PATH_MAX + 32], page[PAGE], was[PAGE];
    struct stat size;
    snprintf(fresh, sizeof fresh, "%s.tmp", to);
    int before = open(clean, O_RDWR | O_CLOEXEC), old = open(to, O_RDONLY | O_CLOEXEC);
    if (old >= 0)
        copy(old, fresh);
    int out = open(fresh, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    fstat(from, &size);
    if (ftruncate(out, size.st_size))
        abort();
    for (off_t at = 0; at < size.st_size; at += PAGE) {
        ssize_t n = pread(from, page, PAGE, at), m = pread(before, was, PAGE, at);
        if (n == m && !memcmp(page, was, n))
            continue;
        if (pwrite(out, page, n, at) != n)
            abort();
    }
    close(out);
    close(before);
    if (old >= 0)
        close(old);
    rename(fresh, to);
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
    char to[PATH_MAX], clean[PATH_MAX + 8];
    const char *image = getenv("STANDFAST_TEST_DISK_IMAGE");
    if (!image)
        return;
    int lock = lock_image(image);
    snprintf(to, sizeof to, "%s/%s", image, name);
    snprintf(clean, sizeof clean, "%s.clean", to);
    if (!*name)
        keep_names(image);
    else if (fails)
        copy(fd, clean);
    else if (!access(clean, F_OK))
        copy_changed(fd, to, clean);
    else
        copy(fd, to);
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
