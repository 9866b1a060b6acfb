/* Every operation on the files of one directory: written down in the order it happened, and refused on command.
 *
 * STANDFAST_TEST_OPERATIONS_DIR   the directory it is about (real path), with everything below it
 * STANDFAST_TEST_OPERATIONS_LOG   where operations are written down, if anywhere: one record in one write,
 *                                 so that those of several processes and threads stand in one order.
 *
 * operations_refuse(kinds, nth, error, lasting) makes the nth operation of one of these kinds, from now on, fail
 * with `error`; with `lasting` every later one too, until it is called with nth = 0. A refused write of several
 * bytes writes half of them first, as a full disk does. operations_counted() says how many there were.
 *
 * Kinds: o open, c create, w write, t truncate, b a sync begins, s a sync has ended, r rename, u unlink, m make
 * a directory, i read (counted and refused only). What is mapped into memory (the index of the log) is not on any disk and not written down.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct record {
    char kind;
    char unused;
    uint16_t name_bytes;
    uint32_t data_bytes;
    int64_t at;
} __attribute__((packed));

static char kinds[16];
static int nth, refusal, lasts, half_written;
static int counted;

void operations_refuse(const char *which, int number, int error, int lasting)
{
    snprintf(kinds, sizeof kinds, "%s", which);
    refusal = error;
    lasts = lasting;
    half_written = 0;
    __atomic_store_n(&counted, 0, __ATOMIC_SEQ_CST);
    nth = number;
}

int operations_counted(void)
{
    return counted;
}

static int refused(char kind)
{
    if (!*kinds || !strchr(kinds, kind))
        return 0;
    int number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    if (!nth || number < nth || (number > nth && !lasts && !half_written))
        return 0;
    half_written = 0;
    errno = refusal;
    return 1;
}

static const char *below(const char *path)
{
    const char *dir = getenv("STANDFAST_TEST_OPERATIONS_DIR");
    if (!dir || !path)
        return 0;
    size_t n = strlen(dir);
    if (strncmp(path, dir, n) || (path[n] && path[n] != '/'))
        return 0;
    return path[n] ? path + n + 1 : path + n;
}

/* The name of an open file in our directory, in `path`; 0 if it is elsewhere or has lost its name. */
static const char *named(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        return 0;
    path[n] = 0;
    return n > 10 && !strcmp(path + n - 10, " (deleted)") ? 0 : below(path);
}

static int mapped(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, "-shm");
}

static void note(char kind, const char *name, int64_t at, const void *data, size_t size)
{
    static int log = -1;
    int before = errno;
    const char *path = getenv("STANDFAST_TEST_OPERATIONS_LOG");
    if (!path || mapped(name))
        return;
    if (log < 0) {
        int opened = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        int nobody = -1;
        if (!__atomic_compare_exchange_n(&log, &nobody, opened, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            close(opened);
    }
    struct record head = {kind, 0, (uint16_t)strlen(name), (uint32_t)size, at};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)name, head.name_bytes}, {(void *)data, size}};
    if (writev(log, parts, 3) != (ssize_t)(sizeof head + head.name_bytes + size))
        abort();
    errno = before;
}

/* The same for a name in an open directory. */
static const char *named_in(int directory, const char *path, char *whole)
{
    if (path[0] == '/' || directory == AT_FDCWD)
        return below(path);
    char there[PATH_MAX];
    if (!named(directory, there) || snprintf(whole, PATH_MAX, "%s/%s", there, path) >= PATH_MAX)
        return 0;
    return below(whole);
}

static int open_at(int directory, const char *path, int flags, int mode)
{
    char whole[PATH_MAX];
    const char *name = named_in(directory, path, whole);
    if (!name)
        return (int)syscall(SYS_openat, directory, path, flags, mode);
    if (refused('o'))
        return -1;
    struct stat seen;
    int created = flags & O_CREAT && fstatat(directory, path, &seen, AT_SYMLINK_NOFOLLOW);
    int fd = (int)syscall(SYS_openat, directory, path, flags, mode);
    if (fd >= 0 && created)
        note('c', name, 0, 0, 0);
    else if (fd >= 0 && flags & O_TRUNC)
        note('t', name, 0, 0, 0);
    return fd;
}

#define MODE(flags)                                                                                          \
    va_list rest;                                                                                            \
    va_start(rest, flags);                                                                                   \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                        \
    va_end(rest)

#define OPEN(function)                                                                                       \
    int function(const char *path, int flags, ...)                                                           \
    {                                                                                                        \
        MODE(flags);                                                                                         \
        return open_at(AT_FDCWD, path, flags, mode);                                                         \
    }

#define OPENAT(function)                                                                                     \
    int function(int directory, const char *path, int flags, ...)                                            \
    {                                                                                                        \
        MODE(flags);                                                                                         \
        return open_at(directory, path, flags, mode);                                                        \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static ssize_t write_at(int fd, const void *bytes, size_t count, off_t at)
{
    char path[PATH_MAX];
    const char *name = named(fd, path);
    if (!name)
        return at < 0 ? syscall(SYS_write, fd, bytes, count) : syscall(SYS_pwrite64, fd, bytes, count, at);
    if (refused('w')) {
        if (count < 2 || half_written || counted != nth)
            return -1;
        count /= 2;
        half_written = 1;
    }
    ssize_t n = at < 0 ? syscall(SYS_write, fd, bytes, count) : syscall(SYS_pwrite64, fd, bytes, count, at);
    if (n > 0)
        note('w', name, at < 0 ? lseek(fd, 0, SEEK_CUR) - n : at, bytes, n);
    return n;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    return write_at(fd, bytes, count, -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    return write_at(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at)
{
    return write_at(fd, bytes, count, at);
}

static int truncate_to(int fd, off_t size)
{
    char path[PATH_MAX];
    const char *name = named(fd, path);
    if (name && refused('t'))
        return -1;
    int done = (int)syscall(SYS_ftruncate, fd, size);
    if (!done && name)
        note('t', name, size, 0, 0);
    return done;
}

int ftruncate(int fd, off_t size)
{
    return truncate_to(fd, size);
}

int ftruncate64(int fd, off_t size)
{
    return truncate_to(fd, size);
}

/* It covers what was written before it began, and is sure when it has ended. */
static int synced(int fd, long call)
{
    char path[PATH_MAX];
    const char *name = named(fd, path);
    if (!name)
        return (int)syscall(call, fd);
    if (refused('s'))
        return -1;
    note('b', name, gettid(), 0, 0);
    int done = (int)syscall(call, fd);
    if (!done)
        note('s', name, gettid(), 0, 0);
    return done;
}

int fsync(int fd)
{
    return synced(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, SYS_fdatasync);
}

static ssize_t read_at(int fd, void *bytes, size_t count, off_t at)
{
    char path[PATH_MAX];
    if (strchr(kinds, 'i') && named(fd, path) && refused('i'))
        return -1;
    return at < 0 ? syscall(SYS_read, fd, bytes, count) : syscall(SYS_pread64, fd, bytes, count, at);
}

ssize_t read(int fd, void *bytes, size_t count)
{
    return read_at(fd, bytes, count, -1);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at)
{
    return read_at(fd, bytes, count, at);
}

ssize_t pread64(int fd, void *bytes, size_t count, off_t at)
{
    return read_at(fd, bytes, count, at);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    char from_whole[PATH_MAX], to_whole[PATH_MAX];
    const char *old = named_in(from_directory, from, from_whole), *new = named_in(to_directory, to, to_whole);
    if (old && refused('r'))
        return -1;
    int done = (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
    if (!done && old && new)
        note('r', old, 0, new, strlen(new));
    return done;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int directory, const char *path, int flags)
{
    char whole[PATH_MAX];
    const char *name = named_in(directory, path, whole);
    if (name && refused('u'))
        return -1;
    int done = (int)syscall(SYS_unlinkat, directory, path, flags);
    if (!done && name)
        note('u', name, 0, 0, 0);
    return done;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int mkdirat(int directory, const char *path, mode_t mode)
{
    char whole[PATH_MAX];
    const char *name = named_in(directory, path, whole);
    if (name && refused('m'))
        return -1;
    int done = (int)syscall(SYS_mkdirat, directory, path, mode);
    if (!done && name)
        note('m', name, 0, 0, 0);
    return done;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}
