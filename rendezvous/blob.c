/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/blob.h"

#include "common/alloc.h"
#include "common/num.h"

#include <string.h>

struct ct_blob *ct_blob_join(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t size;
    if (!ct_add_size(a_len, b_len, &size) || !ct_add_size(size, sizeof(struct ct_blob), &size)) {
        return NULL;
    }
    struct ct_blob *blob = ct_malloc(size);
    if (blob == NULL) {
        return NULL;
    }
    blob->refs = 1;
    blob->len = a_len + b_len;
    if (a_len > 0) {
        memcpy(blob->bytes, a, a_len);
    }
    if (b_len > 0) {
        memcpy(blob->bytes + a_len, b, b_len);
    }
    return blob;
}

struct ct_blob *ct_blob_ref(struct ct_blob *blob)
{
    blob->refs++;
    return blob;
}

void ct_blob_unref(struct ct_blob *blob)
{
    if (blob != NULL && --blob->refs == 0) {
        ct_free(blob);
    }
}
