/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps whole regular files, large ones so that the kernel can use large pages. If a file shrinks
 * later, access ends the process by SIGBUS, as with any mapping. ct_mapping_close() unmaps.
 */
#include "trainer/formats/mapping.h"

#include "common/num.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The size of large pages on x86-64, and on aarch64 with pages of 4 KiB. */
#define LARGE_PAGE ((size_t)2 << 20)

/* Since Linux 6.1. Older headers lack it, and older kernels refuse it. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Maps at a multiple of the large page's size. Large pages need that; mmap() ignores it. */
static void *map_aligned(int fd, size_t len)
{
    size_t room;
    if (len < LARGE_PAGE || !ct_add_size(len, LARGE_PAGE, &room)) {
        return mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    }
    char *place = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
        return MAP_FAILED;
    }
    size_t before = (LARGE_PAGE - (uintptr_t)place % LARGE_PAGE) % LARGE_PAGE;
    void *bytes = mmap(place + before, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    if (bytes == MAP_FAILED) {
        int saved = errno;
        (void)munmap(place, room);
        errno = saved;
        return MAP_FAILED;
    }
    /* The mapping includes all of its last page. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = before + (len + page - 1) / page * page;
    if (before > 0) {
        (void)munmap(place, before);
    }
    if (end < room) {
        (void)munmap(place + end, room - end);
    }
    return bytes;
}

void ct_mapping_use_large_pages(const uint8_t *bytes, size_t len)
{
    size_t before = (LARGE_PAGE - (uintptr_t)bytes % LARGE_PAGE) % LARGE_PAGE;
    if (len < LARGE_PAGE || len - LARGE_PAGE < before) {
        return;
    }
    size_t whole = (len - before) / LARGE_PAGE * LARGE_PAGE;
    (void)madvise((void *)(uintptr_t)(bytes + before), whole, MADV_COLLAPSE);
}

int ct_mapping_of(int fd, size_t len, struct ct_mapping *out, struct ct_err *err)
{
    void *bytes = map_aligned(fd, len);
    if (bytes == MAP_FAILED) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot map %zu bytes", len);
    }
    *out = (struct ct_mapping){.bytes = bytes, .len = len};
    return 0;
}

static int map_open(int fd, const char *path, size_t max, struct ct_mapping *out,
                    struct ct_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0) {
        return ct_err_set(err, CT_EUNSUPPORTED, "%s cannot be mapped", path);
    }
    if ((uint64_t)st.st_size > max) {
        return ct_err_set(err, CT_ELIMIT, "%s is larger than %zu bytes", path, max);
    }
    int rc = ct_mapping_of(fd, (size_t)st.st_size, out, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s", path);
    }
    return rc;
}

int ct_mapping_open(const char *path, size_t max, struct ct_mapping *out, struct ct_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot open %s", path);
    }
    int rc = map_open(fd, path, max, out, err);
    (void)close(fd); /* the mapping stays valid */
    return rc;
}

void ct_mapping_close(struct ct_mapping *mapping)
{
    if (mapping != NULL && mapping->bytes != NULL) {
        (void)munmap((void *)(uintptr_t)mapping->bytes, mapping->len);
        *mapping = (struct ct_mapping){0};
    }
}
