/* SPDX-License-Identifier: Apache-2.0
 *
 * The file in memory that the ranks of one machine share (a memfd).
 *
 * Rank 0 creates it and publishes "<pid>:<fd>:<token>" in the job's store. The others open
 * /proc/<pid>/fd/<fd> and compare the token with the one in the file's first page. The file has no
 * name in a file system, so nothing is left behind when processes die, and no other file can be
 * taken for it. It only grows: a seal forbids shrinking it under a mapping.
 */
#ifndef CT_WORKER_SHM_SHM_H
#define CT_WORKER_SHM_SHM_H

#include "worker/shm/sync.h"

#include <stddef.h>

struct shm {
    int fd;
    struct sync_page *page; /* mapped; page->slots has one entry per rank */
    size_t page_bytes;      /* size of that mapping, a multiple of a page of memory */
};

#define SHM_INIT \
    {            \
        .fd = -1 \
    }

/* The longest invitation: two numbers, 32 hexadecimal digits, the separators and the NUL. */
#define SHM_INVITATION_MAX 80

/* On rank 0: creates the file for `size` ranks and writes the invitation for the others. */
CT_MUST_CHECK int shm_create(struct shm *shm, int size, char invitation[SHM_INVITATION_MAX],
                             struct ct_err *err);

/* On the others: opens the file. CT_EPROTO if it is not what the invitation promises. */
CT_MUST_CHECK int shm_attach(struct shm *shm, int size, const char *invitation, struct ct_err *err);

/* Legal on SHM_INIT and twice. Other mappings of the file stay valid. */
void shm_fini(struct shm *shm);

/* Reserves memory for [offset, offset + bytes), so that touching it cannot fail. */
CT_MUST_CHECK int shm_reserve(struct shm *shm, size_t offset, size_t bytes, struct ct_err *err);

/* Gives *out, which the caller must munmap(). */
CT_MUST_CHECK int shm_map(struct shm *shm, size_t offset, size_t bytes, void **out,
                          struct ct_err *err);

/* Rounds up to a multiple of a page of memory; false on overflow. */
bool shm_round_up(size_t bytes, size_t *out);

#endif
