/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a store as a new journal in place of the old one.
 */
#ifndef CT_RENDEZVOUS_STORE_JOURNAL_SNAPSHOT_H
#define CT_RENDEZVOUS_STORE_JOURNAL_SNAPSHOT_H

#include "common/err.h"
#include "rendezvous/store/store.h"

#include <stdint.h>
#include <sys/types.h>

/* Writes all of `store` to `path`.new, makes sure it is on the disk, and renames it to `path`: at
 * every moment one of the two is complete. Gives the locked descriptor and the bytes written. On
 * failure `path` is as it was and nothing else is left. Blocks for as long as the disk takes. */
CT_MUST_CHECK int ct_journal_snapshot(const char *path, mode_t mode, struct ct_store *store,
                                      int *out_fd, uint64_t *out_size, struct ct_err *err);

#endif
