/* SPDX-License-Identifier: Apache-2.0
 *
 * Removes a folder depth first and follows no link, so a test cannot remove what is outside of it.
 */
#include "tests/lib/tmpdir.h"

#include "tests/lib/ct_test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

char *ct_tmpdir_path(const char *dir, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        fail_msg("out of memory");
    }
    return path;
}

char *ct_tmpdir_new(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = ct_tmpdir_path(base != NULL && base[0] != '\0' ? base : "/tmp", "ctrun-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        fail_msg("cannot make %s: %s", dir, strerror(errno));
    }
    return dir;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void ct_tmpdir_free(char *dir)
{
    if (dir == NULL) {
        return;
    }
    /* Depth first, links are removed and not followed. 16 = folders held open at a time. */
    if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        fail_msg("cannot remove %s: %s", dir, strerror(errno));
    }
    free(dir);
}

char *ct_tmpdir_write(const char *dir, const char *name, const void *bytes, size_t len)
{
    char *path = ct_tmpdir_path(dir, name);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        fail_msg("cannot create %s: %s", path, strerror(errno));
    }
    size_t written = len > 0 ? fwrite(bytes, 1, len, file) : 0;
    if (fclose(file) != 0 || written != len) {
        fail_msg("cannot write %s: %s", path, strerror(errno));
    }
    return path;
}
