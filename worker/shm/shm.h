/* SPDX-License-Identifier: Apache-2.0
 *
 * The file in memory that the ranks of one machine share.
 *
 * Rank 0 makes a memfd and publishes "<pid>:<fd>:<token>" in the job's store; the others open
 * /proc/<pid>/fd/<fd> and compare the token with the one in the file's first page. No name in any
 * file system, so nothing is left behind whatever dies, and nobody else's file is ever taken for
 * it. The file only grows: a seal keeps it from shrinking under a mapping.
 */
#ifndef CT_WORKER_SHM_SHM_H
#define CT_WORKER_SHM_SHM_H

#include "worker/shm/sync.h"

#include <stddef.h>

struct shm {
    int fd;
    struct sync_page *page; /* mapped; page->slots has one entry per rank */
    size_t page_bytes;      /* of that mapping, a multiple of 4096 */
};

#define SHM_INIT \
    {            \
        .fd = -1 \
    }

/* Longest invitation, with its NUL: two numbers and 32 hexadecimal digits. */
#define SHM_INVITATION_MAX 80

/* Rank 0: makes the file for `size` ranks and writes the invitation for the others. */
CT_MUST_CHECK int shm_create(struct shm *shm, int size, char invitation[SHM_INVITATION_MAX],
                             struct ct_err *err);

/* The others. CT_EPROTO when the file is not what the invitation promises. */
CT_MUST_CHECK int shm_attach(struct shm *shm, int size, const char *invitation, struct ct_err *err);

/* NULL-safe in the sense of SHM_INIT; other mappings of the file live on. */
void shm_fini(struct shm *shm);

/* Makes sure that memory is behind [offset, offset + bytes), so that touching it cannot fail. */
CT_MUST_CHECK int shm_reserve(struct shm *shm, size_t offset, size_t bytes, struct ct_err *err);

/* Gives *out; munmap() it. */
CT_MUST_CHECK int shm_map(struct shm *shm, size_t offset, size_t bytes, void **out,
                          struct ct_err *err);

/* Next multiple of 4096; false on overflow. */
bool shm_round_up(size_t bytes, size_t *out);

#endif
