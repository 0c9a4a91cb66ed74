/* SPDX-License-Identifier: Apache-2.0
 *
 * Two passes: the first finds where the last complete request ends, the second makes the changes up
 * to there. So an incomplete request needs no memory, however large it is.
 */
#include "rendezvous/store/journal_load.h"

#include "rendezvous/store/journal.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Asked from the kernel per read. Not tuned. */
#define READ_CHUNK ((size_t)1 << 20)

/* The file as a stream. */
struct source {
    int fd;
    uint64_t at;  /* next byte to read */
    uint64_t end; /* bytes behind it are not looked at */
    struct ct_buf held;
};

/* Reads more bytes. Returns 0, CT_JOURNAL_E_MORE at the end, or a negative code. */
static int fill(struct source *src, struct ct_err *err)
{
    uint64_t left = src->end - src->at;
    size_t want = left < READ_CHUNK ? (size_t)left : READ_CHUNK;
    if (want == 0) {
        return CT_JOURNAL_E_MORE;
    }
    if (ct_buf_reserve(&src->held, want) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    ssize_t n;
    do {
        n = pread(src->fd, ct_buf_tail(&src->held), want, (off_t)src->at);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot read");
    }
    if (n == 0) { /* somebody cut it meanwhile */
        src->end = src->at;
        return CT_JOURNAL_E_MORE;
    }
    src->held.len += (size_t)n;
    src->at += (size_t)n;
    return 0;
}

/* As ct_journal_next(), but reads more bytes as long as there are some. */
static int next(struct source *src, struct ct_journal_reader *reader, struct ct_change *out,
                size_t *used, struct ct_err *err)
{
    for (;;) {
        int rc = ct_journal_next(reader, ct_buf_bytes(&src->held), src->held.len, out, used, err);
        if (rc == CT_JOURNAL_E_MORE) {
            rc = fill(src, err);
            if (rc == 0) {
                continue;
            }
        }
        return rc;
    }
}

static int header(struct source *src, struct ct_err *err)
{
    for (;;) {
        int rc = ct_journal_check_header(ct_buf_bytes(&src->held), src->held.len, err);
        if (rc == CT_JOURNAL_E_MORE) {
            rc = fill(src, err);
            if (rc == 0) {
                continue;
            }
        }
        if (rc == 0) {
            ct_buf_consume(&src->held, CT_JOURNAL_HEADER_LEN);
        }
        return rc;
    }
}

/* First pass. Returns CT_JOURNAL_E_MORE when there is no header. */
static int survey(struct source *src, struct ct_journal_load *out, struct ct_err *err)
{
    int rc = header(src, err);
    if (rc != 0) {
        return rc;
    }
    struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
    struct ct_change change;
    size_t used;
    while ((rc = next(src, &reader, &change, &used, &out->why)) == 0) {
        ct_buf_consume(&src->held, used);
    }
    if (rc < 0 && rc != CT_EFORMAT) {
        if (err != NULL) {
            *err = out->why;
        }
        return rc;
    }
    out->whole = reader.whole;
    out->changes = reader.changes;
    /* A wrong checksum in the very last record only means that not all of it reached the disk. */
    out->damaged = rc == CT_EFORMAT && (used == 0 || reader.offset + used < out->size);
    return 0;
}

/* Second pass. */
static int replay(struct source *src, struct ct_store *store, struct ct_err *err)
{
    int rc = header(src, err);
    struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
    while (rc == 0) {
        struct ct_change change;
        size_t used;
        rc = next(src, &reader, &change, &used, err);
        if (rc != 0) {
            break;
        }
        rc = ct_store_apply(store, &change);
        ct_buf_consume(&src->held, used);
        if (rc != 0) {
            return ct_err_set(err, rc, "cannot make change %llu again: %s",
                              (unsigned long long)reader.changes, ct_code_text(rc));
        }
    }
    return rc == CT_JOURNAL_E_MORE ? 0 : rc;
}

int ct_journal_load(int fd, struct ct_store *store, struct ct_journal_load *out, struct ct_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot look at it");
    }
    struct ct_journal_load load = {.size = (uint64_t)st.st_size};
    struct source first = {.fd = fd, .end = load.size};
    int rc = survey(&first, &load, err);
    ct_buf_fini(&first.held);
    if (rc == 0) {
        struct source second = {.fd = fd, .end = load.whole};
        rc = replay(&second, store, err);
        ct_buf_fini(&second.held);
    }
    if (rc < 0) {
        return rc;
    }
    *out = load;
    return 0;
}
