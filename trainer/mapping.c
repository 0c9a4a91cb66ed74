/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int ct_mapping_of(int fd, size_t len, struct ct_mapping *out, struct ct_err *err)
{
    void *bytes = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
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
    (void)close(fd); /* the mapping stays */
    return rc;
}

void ct_mapping_close(struct ct_mapping *mapping)
{
    if (mapping != NULL && mapping->bytes != NULL) {
        (void)munmap((void *)(uintptr_t)mapping->bytes, mapping->len);
        *mapping = (struct ct_mapping){0};
    }
}
