/* fault_kit.h: makes system calls and allocations of this program fail, also those of the libraries
 * that it is linked with.
 *
 * fault_arm(kind, countdown, repeat): the next `countdown` calls of that kind succeed, the `repeat`
 * calls after them fail. Armed with FAULT_NEVER, the kit only counts calls: fault_count. The
 * functions below replace those of libc, so only a program of one source file may include this
 * header. Calls made inside libc or inside the sanitizer don't count: a sanitizer doesn't survive a
 * failure of its own calls. */
#ifndef FAULT_KIT_H
#define FAULT_KIT_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum fault_kind {
  FAULT_NONE,
  FAULT_FULL,        /* ENOSPC: writing and creating files */
  FAULT_WRITE_FAILS, /* EIO: writing to files and sockets, syncing */
  FAULT_SHORT,       /* files and sockets take half of the bytes */
  FAULT_READ_FAILS,  /* EIO: reading files and sockets */
  FAULT_DESCRIPTORS, /* EMFILE */
  FAULT_MEMORY,      /* ENOMEM; mappings too */
  FAULT_OWN_MEMORY,  /* as FAULT_MEMORY, for calls from this program itself, not from libraries */
  FAULT_KINDS
} fault_kind;

#define FAULT_NEVER INT64_C(1000000000)

static atomic_int fault_armed;
static _Atomic int64_t fault_left, fault_repeats;

static inline void fault_arm(fault_kind kind, int64_t countdown, int64_t repeat) {
  atomic_store(&fault_left, countdown);
  atomic_store(&fault_repeats, repeat);
  atomic_store(&fault_armed, (int)kind);
}

static inline void fault_disarm(void) { atomic_store(&fault_armed, FAULT_NONE); }

/* Calls counted since fault_arm with FAULT_NEVER. */
static inline int64_t fault_count(void) { return FAULT_NEVER - atomic_load(&fault_left); }

static int fault_due(fault_kind kind) {
  if (atomic_load_explicit(&fault_armed, memory_order_relaxed) != (int)kind) return 0;
  int64_t left = atomic_fetch_sub(&fault_left, 1);
  return left <= 0 && left > -atomic_load(&fault_repeats);
}

/* ---- memory -------------------------------------------------------------------------------- */

#define FAULT_IN_PLACE_OF(name) __asm__(#name) __attribute__((visibility("default"), used))
#define FAULT_FAILS(code, ret) return errno = (code), (ret)

/* The allocator behind the replaced functions: the sanitizer's if there is one, else libc's. */
void *fault_asan_malloc(size_t size) __asm__("__interceptor_malloc") __attribute__((weak));
void *fault_asan_calloc(size_t count, size_t size) __asm__("__interceptor_calloc")
    __attribute__((weak));
void *fault_asan_realloc(void *old, size_t size) __asm__("__interceptor_realloc")
    __attribute__((weak));
void *fault_libc_malloc(size_t size) __asm__("__libc_malloc");
void *fault_libc_calloc(size_t count, size_t size) __asm__("__libc_calloc");
void *fault_libc_realloc(void *old, size_t size) __asm__("__libc_realloc");

/* The base address of the library that contains this address. */
static const void *fault_home_of(uintptr_t address) {
  Dl_info info;
  return address != 0 && dladdr((const void *)address, &info) != 0 ? info.dli_fbase : NULL;
}

static int fault_memory_due(const void *caller) {
  int armed = atomic_load_explicit(&fault_armed, memory_order_relaxed);
  if (armed != FAULT_MEMORY && armed != FAULT_OWN_MEMORY) return 0;
  const void *home = fault_home_of((uintptr_t)caller),
             *asan = fault_home_of((uintptr_t)fault_asan_malloc);
  if (home == fault_home_of((uintptr_t)fault_libc_malloc) || (asan != NULL && home == asan))
    return 0;
  return fault_due(FAULT_MEMORY) ||
         (home == fault_home_of((uintptr_t)&fault_armed) && fault_due(FAULT_OWN_MEMORY));
}

static void *fault_next_malloc(size_t size) {
  return fault_asan_malloc != NULL ? fault_asan_malloc(size) : fault_libc_malloc(size);
}

void *fault_malloc(size_t size) FAULT_IN_PLACE_OF(malloc);
void *fault_malloc(size_t size) {
  if (fault_memory_due(__builtin_return_address(0))) FAULT_FAILS(ENOMEM, NULL);
  return fault_next_malloc(size);
}

void *fault_calloc(size_t count, size_t size) FAULT_IN_PLACE_OF(calloc);
void *fault_calloc(size_t count, size_t size) {
  if (fault_memory_due(__builtin_return_address(0))) FAULT_FAILS(ENOMEM, NULL);
  return fault_asan_calloc != NULL ? fault_asan_calloc(count, size)
                                   : fault_libc_calloc(count, size);
}

void *fault_realloc(void *old, size_t size) FAULT_IN_PLACE_OF(realloc);
void *fault_realloc(void *old, size_t size) {
  if (fault_memory_due(__builtin_return_address(0))) FAULT_FAILS(ENOMEM, NULL);
  return fault_asan_realloc != NULL ? fault_asan_realloc(old, size) : fault_libc_realloc(old, size);
}

char *fault_strdup(const char *text) FAULT_IN_PLACE_OF(strdup);
char *fault_strdup(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = fault_memory_due(__builtin_return_address(0)) ? NULL : fault_next_malloc(size);
  if (copy == NULL) FAULT_FAILS(ENOMEM, NULL);
  return memcpy(copy, text, size);
}

void *fault_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
    FAULT_IN_PLACE_OF(mmap);
void *fault_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  if (fault_memory_due(__builtin_return_address(0))) FAULT_FAILS(ENOMEM, MAP_FAILED);
  return (void *)syscall(SYS_mmap, at, size, protection, flags, fd,
                         offset); // NOLINT(performance-no-int-to-ptr)
}

void *fault_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
    FAULT_IN_PLACE_OF(mmap64) __attribute__((alias("mmap")));

/* ---- writing ------------------------------------------------------------------------------- */

static int fault_is(int fd, mode_t one, mode_t other) {
  struct stat st;
  if (atomic_load_explicit(&fault_armed, memory_order_relaxed) == FAULT_NONE) return 0;
  return fstat(fd, &st) == 0 && ((st.st_mode & S_IFMT) == one || (st.st_mode & S_IFMT) == other);
}

/* Returns 0, or the errno of this write; *size becomes the number of bytes that may be written. */
static int fault_of_write(int fd, size_t *size) {
  if (fault_is(fd, S_IFREG, S_IFREG) && fault_due(FAULT_FULL)) return ENOSPC;
  if (fault_is(fd, S_IFREG, S_IFSOCK) && fault_due(FAULT_WRITE_FAILS)) return EIO;
  if (*size > 1 && fault_is(fd, S_IFREG, S_IFSOCK) && fault_due(FAULT_SHORT)) *size /= 2;
  return 0;
}

ssize_t fault_write(int fd, const void *data, size_t size) FAULT_IN_PLACE_OF(write);
ssize_t fault_write(int fd, const void *data, size_t size) {
  int code = fault_of_write(fd, &size);
  if (code != 0) FAULT_FAILS(code, -1);
  return syscall(SYS_write, fd, data, size);
}

ssize_t fault_pwrite(int fd, const void *data, size_t size, off_t at) FAULT_IN_PLACE_OF(pwrite);
ssize_t fault_pwrite(int fd, const void *data, size_t size, off_t at) {
  int code = fault_of_write(fd, &size);
  if (code != 0) FAULT_FAILS(code, -1);
  return syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t fault_pwrite64(int fd, const void *data, size_t size, off_t at) FAULT_IN_PLACE_OF(pwrite64)
    __attribute__((alias("pwrite")));

/* A short write takes only the first half of the first piece. */
ssize_t fault_writev(int fd, const struct iovec *pieces, int count) FAULT_IN_PLACE_OF(writev);
ssize_t fault_writev(int fd, const struct iovec *pieces, int count) {
  size_t size = 2;
  int code = fault_of_write(fd, &size);
  if (code != 0) FAULT_FAILS(code, -1);
  return size == 2 ? syscall(SYS_writev, fd, pieces, count)
                   : syscall(SYS_write, fd, pieces[0].iov_base, (pieces[0].iov_len + 1) / 2);
}

ssize_t fault_sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
                     socklen_t to_len) FAULT_IN_PLACE_OF(sendto);
ssize_t fault_sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
                     socklen_t to_len) {
  int code = fault_of_write(fd, &size);
  if (code != 0) FAULT_FAILS(code, -1);
  return syscall(SYS_sendto, fd, data, size, flags, to, to_len);
}

ssize_t fault_send(int fd, const void *data, size_t size, int flags) FAULT_IN_PLACE_OF(send);
ssize_t fault_send(int fd, const void *data, size_t size, int flags) {
  return fault_sendto(fd, data, size, flags, NULL, 0);
}

ssize_t fault_sendmsg(int fd, const struct msghdr *message, int flags) FAULT_IN_PLACE_OF(sendmsg);
ssize_t fault_sendmsg(int fd, const struct msghdr *message, int flags) {
  size_t size = 2;
  int code = fault_of_write(fd, &size);
  if (code != 0) FAULT_FAILS(code, -1);
  if (size == 2 || message->msg_iovlen == 0) return syscall(SYS_sendmsg, fd, message, flags);
  return syscall(SYS_sendto, fd, message->msg_iov[0].iov_base,
                 (message->msg_iov[0].iov_len + 1) / 2, flags, NULL, 0);
}

int fault_ftruncate(int fd, off_t size) FAULT_IN_PLACE_OF(ftruncate);
int fault_ftruncate(int fd, off_t size) {
  size_t whole = 1;
  int code = fault_of_write(fd, &whole);
  if (code != 0) FAULT_FAILS(code, -1);
  return (int)syscall(SYS_ftruncate, fd, size);
}

int fault_ftruncate64(int fd, off_t size) FAULT_IN_PLACE_OF(ftruncate64)
    __attribute__((alias("ftruncate")));

int fault_fsync(int fd) FAULT_IN_PLACE_OF(fsync);
int fault_fsync(int fd) {
  if (fault_due(FAULT_WRITE_FAILS)) FAULT_FAILS(EIO, -1);
  return (int)syscall(SYS_fsync, fd);
}

int fault_fdatasync(int fd) FAULT_IN_PLACE_OF(fdatasync);
int fault_fdatasync(int fd) {
  if (fault_due(FAULT_WRITE_FAILS)) FAULT_FAILS(EIO, -1);
  return (int)syscall(SYS_fdatasync, fd);
}

/* ---- reading ------------------------------------------------------------------------------- */

static int fault_of_read(int fd) {
  return fault_is(fd, S_IFREG, S_IFSOCK) && fault_due(FAULT_READ_FAILS);
}

ssize_t fault_read(int fd, void *data, size_t size) FAULT_IN_PLACE_OF(read);
ssize_t fault_read(int fd, void *data, size_t size) {
  if (fault_of_read(fd)) FAULT_FAILS(EIO, -1);
  return syscall(SYS_read, fd, data, size);
}

ssize_t fault_pread(int fd, void *data, size_t size, off_t at) FAULT_IN_PLACE_OF(pread);
ssize_t fault_pread(int fd, void *data, size_t size, off_t at) {
  if (fault_of_read(fd)) FAULT_FAILS(EIO, -1);
  return syscall(SYS_pread64, fd, data, size, at);
}

ssize_t fault_pread64(int fd, void *data, size_t size, off_t at) FAULT_IN_PLACE_OF(pread64)
    __attribute__((alias("pread")));

ssize_t fault_recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from,
                       socklen_t *from_len) FAULT_IN_PLACE_OF(recvfrom);
ssize_t fault_recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from,
                       socklen_t *from_len) {
  if (fault_of_read(fd)) FAULT_FAILS(EIO, -1);
  return syscall(SYS_recvfrom, fd, data, size, flags, from, from_len);
}

ssize_t fault_recv(int fd, void *data, size_t size, int flags) FAULT_IN_PLACE_OF(recv);
ssize_t fault_recv(int fd, void *data, size_t size, int flags) {
  return fault_recvfrom(fd, data, size, flags, NULL, NULL);
}

/* ---- descriptors --------------------------------------------------------------------------- */

int fault_open(const char *path, int flags, ...) FAULT_IN_PLACE_OF(open);
int fault_open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (fault_due(FAULT_DESCRIPTORS)) FAULT_FAILS(EMFILE, -1);
  if ((flags & O_CREAT) != 0 && fault_due(FAULT_FULL)) FAULT_FAILS(ENOSPC, -1);
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fault_open64(const char *path, int flags, ...) FAULT_IN_PLACE_OF(open64)
    __attribute__((alias("open")));

int fault_socket(int domain, int type, int protocol) FAULT_IN_PLACE_OF(socket);
int fault_socket(int domain, int type, int protocol) {
  if (fault_due(FAULT_DESCRIPTORS)) FAULT_FAILS(EMFILE, -1);
  return (int)syscall(SYS_socket, domain, type, protocol);
}

int fault_socketpair(int domain, int type, int protocol, int pair[2]) FAULT_IN_PLACE_OF(socketpair);
int fault_socketpair(int domain, int type, int protocol, int pair[2]) {
  if (fault_due(FAULT_DESCRIPTORS)) FAULT_FAILS(EMFILE, -1);
  return (int)syscall(SYS_socketpair, domain, type, protocol, pair);
}

int fault_pipe2(int pair[2], int flags) FAULT_IN_PLACE_OF(pipe2);
int fault_pipe2(int pair[2], int flags) {
  if (fault_due(FAULT_DESCRIPTORS)) FAULT_FAILS(EMFILE, -1);
  return (int)syscall(SYS_pipe2, pair, flags);
}

int fault_pipe(int pair[2]) FAULT_IN_PLACE_OF(pipe);
int fault_pipe(int pair[2]) { return fault_pipe2(pair, 0); }

int fault_eventfd(unsigned count, int flags) FAULT_IN_PLACE_OF(eventfd);
int fault_eventfd(unsigned count, int flags) {
  if (fault_due(FAULT_DESCRIPTORS)) FAULT_FAILS(EMFILE, -1);
  return (int)syscall(SYS_eventfd2, count, flags);
}

int fault_epoll_create1(int flags) FAULT_IN_PLACE_OF(epoll_create1);
int fault_epoll_create1(int flags) {
  if (fault_due(FAULT_DESCRIPTORS)) FAULT_FAILS(EMFILE, -1);
  return (int)syscall(SYS_epoll_create1, flags);
}

int fault_fcntl(int fd, int what, ...) FAULT_IN_PLACE_OF(fcntl);
int fault_fcntl(int fd, int what, ...) {
  va_list more;
  va_start(more, what);
  long arg = va_arg(more, long);
  va_end(more);
  if ((what == F_DUPFD || what == F_DUPFD_CLOEXEC) && fault_due(FAULT_DESCRIPTORS))
    FAULT_FAILS(EMFILE, -1);
  return (int)syscall(SYS_fcntl, fd, what, arg);
}

int fault_fcntl64(int fd, int what, ...) FAULT_IN_PLACE_OF(fcntl64) __attribute__((alias("fcntl")));

#endif
