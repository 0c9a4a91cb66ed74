/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over each file of the folders named as arguments, and over every prefix of a
 * file, which is where length checks go wrong. The file is named before it is run, so the last line
 * tells which one ended the process.
 */
#include "common/buf.h"
#include "common/file.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Corpus files are small; prefixes of a long one would take for ever. */
#define MAX_FILE ((size_t)1 << 20)
#define MAX_PREFIXES 4096

static int replay(const char *path)
{
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    (void)printf("%s\n", path);
    (void)fflush(stdout);
    if (ct_file_read(path, MAX_FILE, &buf, &err) != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    for (size_t len = buf.len < MAX_PREFIXES ? 0 : buf.len; len <= buf.len; len++) {
        /* In memory of its own, so that a sanitizer sees a read beyond the end. */
        uint8_t *copy = malloc(len > 0 ? len : 1);
        if (copy == NULL) {
            abort();
        }
        if (len > 0) {
            memcpy(copy, ct_buf_bytes(&buf), len);
        }
        (void)LLVMFuzzerTestOneInput(copy, len);
        free(copy);
    }
    ct_buf_fini(&buf);
    return 0;
}

int main(int argc, char **argv)
{
    int files = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (dir == NULL) {
            perror(argv[i]);
            return EXIT_FAILURE;
        }
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL) {
            char path[4096];
            if (entry->d_name[0] != '.' &&
                snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name) < (int)sizeof(path)) {
                failed += replay(path) != 0;
                files++;
            }
        }
        (void)closedir(dir);
    }
    (void)printf("%d files\n", files);
    return files > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
