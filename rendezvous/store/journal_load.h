/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a journal's file into a store.
 */
#ifndef CT_RENDEZVOUS_STORE_JOURNAL_LOAD_H
#define CT_RENDEZVOUS_STORE_JOURNAL_LOAD_H

#include "common/err.h"
#include "rendezvous/store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_journal_load {
    uint64_t size;    /* bytes of the file */
    uint64_t whole;   /* how many of these were used; 0 when there is not even a header */
    uint64_t changes; /* made to the store */
    /* The bytes after `whole` are more than an unfinished write: the file was changed afterwards.
     * `why` says what is wrong. */
    bool damaged;
    struct ct_err why;
};

/* Applies every change in the file, up to the first fault, to `store`, which must be empty and have
 * no change log. A cut or damaged end is no failure. CT_EFORMAT, CT_EUNSUPPORTED: not our file.
 * CT_EIO. CT_ENOMEM and others: the store refused a change. */
CT_MUST_CHECK int ct_journal_load(int fd, struct ct_store *store, struct ct_journal_load *out,
                                  struct ct_err *err);

#endif
