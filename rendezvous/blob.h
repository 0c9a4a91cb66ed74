/* SPDX-License-Identifier: Apache-2.0
 *
 * Immutable, counted bytes: a value that the store and any number of unsent replies share. One
 * thread.
 */
#ifndef CT_RENDEZVOUS_BLOB_H
#define CT_RENDEZVOUS_BLOB_H

#include <stddef.h>

struct ct_blob {
    size_t refs;
    size_t len;
    unsigned char bytes[];
};

/* Copies `a` and behind it `b`; one reference, which the caller owns. NULL when memory is out. */
struct ct_blob *ct_blob_join(const void *a, size_t a_len, const void *b, size_t b_len);

static inline struct ct_blob *ct_blob_new(const void *bytes, size_t len)
{
    return ct_blob_join(bytes, len, NULL, 0);
}

/* Returns its argument with one reference more. */
struct ct_blob *ct_blob_ref(struct ct_blob *blob);

/* NULL is allowed. */
void ct_blob_unref(struct ct_blob *blob);

#endif
