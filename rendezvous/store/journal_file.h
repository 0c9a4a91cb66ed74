/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal's file. It lets a store survive its process, because each change is in the file
 * before the client gets the reply.
 *
 * The journal is the store's change log. Changes are collected in memory and written by
 * ct_journal_commit(), which must be called before a reply that acknowledges them is sent. What a
 * commit has written survives the end of the process, even by kill -9, and with `sync` also a crash
 * of the machine.
 *
 * Room for a change is reserved in the file system before the change is accepted. So on a full disk
 * changes are refused one by one, before they are made. If a file system cannot reserve room, each
 * change is written at once. Either way reads go on, and changes are accepted again when there is
 * room.
 *
 * When the file has become much larger than what it describes, commit writes it anew. That blocks
 * for as long as the disk takes to write the live data.
 */
#ifndef CT_RENDEZVOUS_STORE_JOURNAL_FILE_H
#define CT_RENDEZVOUS_STORE_JOURNAL_FILE_H

#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "rendezvous/store/store.h"

#include <stdbool.h>
#include <stdint.h>

/* The file is written anew when it is larger than twice the live data plus this. So small journals
 * are left alone, and in the long run each byte is written at most twice more. */
#define CT_JOURNAL_SLACK ((uint64_t)1 << 20)

/* Milliseconds between attempts to write anew what could not be written. */
#define CT_JOURNAL_RETRY_MS 1000

struct ct_journal;

struct ct_journal_options {
    const char *path;
    bool sync;                /* each commit waits for the disk */
    const struct ct_log *log; /* borrowed, may be NULL */
    const struct ct_clock
        *clock; /* borrowed; NULL = monotonic. Used only for the time between attempts. */
};

/* Opens or makes the file (mode 0600), fills `store`, which must be empty, from it, and becomes the
 * store's change log. An end that was cut off is removed. Of a damaged file the good part is used,
 * and the file is kept under another name. Both are logged. CT_EBUSY: another process has it;
 * CT_EFORMAT: the file is no journal, and was not touched. On failure the store may hold some keys.
 * The process must ignore SIGXFSZ. */
CT_MUST_CHECK int ct_journal_open(const struct ct_journal_options *options, struct ct_store *store,
                                  struct ct_journal **out, struct ct_err *err);

/* Writes the changes since the last commit; costs nothing if there are none. On failure they are in
 * the store but not in the file, so no client may get a reply to them. From then on the journal
 * refuses changes until it could write the whole store anew. */
CT_MUST_CHECK int ct_journal_commit(struct ct_journal *journal);

/* To be called after ct_store_clear(): forgets all changes. */
CT_MUST_CHECK int ct_journal_clear(struct ct_journal *journal, struct ct_err *err);

struct ct_journal_stats {
    uint64_t size;     /* bytes of the file */
    uint64_t refused;  /* changes that could not be journalled */
    uint64_t rewrites; /* times it was written anew */
};

void ct_journal_stats(const struct ct_journal *journal, struct ct_journal_stats *out);

/* Commits, leaves the store, closes. NULL is allowed. */
void ct_journal_close(struct ct_journal *journal);

#endif
