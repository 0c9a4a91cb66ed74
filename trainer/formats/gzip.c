/* SPDX-License-Identifier: Apache-2.0
 *
 * Inflates one gzip stream with zlib. The output grows in steps up to `max`; more is CT_ELIMIT.
 * Data that is damaged, truncated or followed by other bytes is CT_EFORMAT. zlib allocates through
 * common/alloc.h. The caller owns the output.
 */
#include "trainer/formats/gzip.h"

#include "common/alloc.h"

#include <limits.h>
#include <zlib.h>

#define CHUNK ((size_t)1 << 20)
/* inflateInit2: 15 window bits; 16 more request the gzip wrapper with its checksum. */
#define GZIP_WINDOW (15 + 16)

static voidpf z_alloc(voidpf data, uInt items, uInt size)
{
    (void)data;
    return ct_calloc(items, size);
}

static void z_free(voidpf data, voidpf ptr)
{
    (void)data;
    ct_free(ptr);
}

bool ct_gzip_is(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    return len >= 2 && p[0] == 0x1f && p[1] == 0x8b;
}

/* Returns the size of the next piece of output. It ends at most one byte beyond max; that byte
 * shows that there is more. */
static size_t room_for(size_t done, size_t max)
{
    size_t left = max - done;
    return left == 0 ? 1 : (left < CHUNK ? left : CHUNK);
}

static int run(z_stream *z, size_t max, struct ct_buf *out, struct ct_err *err)
{
    size_t done = 0;
    for (;;) {
        size_t room = room_for(done, max);
        unsigned char probe;
        bool probing = done == max;
        if (!probing && ct_buf_reserve(out, room) != 0) {
            return ct_err_set(err, CT_ENOMEM, "out of memory");
        }
        z->next_out = probing ? &probe : ct_buf_tail(out);
        z->avail_out = (uInt)room;
        int status = inflate(z, Z_NO_FLUSH);
        size_t got = room - z->avail_out;
        if (probing && got > 0) {
            return ct_err_set(err, CT_ELIMIT, "inflates to more than %zu bytes", max);
        }
        if (!probing) {
            out->len += got;
            done += got;
        }
        if (status == Z_STREAM_END) {
            return z->avail_in == 0
                       ? 0
                       : ct_err_set(err, CT_EFORMAT, "%u bytes follow the gzip data", z->avail_in);
        }
        if (status == Z_MEM_ERROR) {
            return ct_err_set(err, CT_ENOMEM, "out of memory");
        }
        if (status != Z_OK && status != Z_BUF_ERROR) {
            return ct_err_set(err, CT_EFORMAT, "damaged gzip data: %s",
                              z->msg != NULL ? z->msg : "not a gzip file");
        }
        /* There is room left, so zlib has used all input and the end of the stream is missing. */
        if (z->avail_out > 0) {
            return ct_err_set(err, CT_EFORMAT, "truncated gzip data");
        }
    }
}

int ct_gzip_inflate(const void *bytes, size_t len, size_t max, struct ct_buf *out,
                    struct ct_err *err)
{
    if (len > UINT_MAX) {
        return ct_err_set(err, CT_ELIMIT, "more than %u bytes of gzip data", UINT_MAX);
    }
    z_stream z = {.zalloc = z_alloc, .zfree = z_free};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    z.next_in = (z_const Bytef *)bytes;
    z.avail_in = (uInt)len;
    int rc = run(&z, max, out, err);
    (void)inflateEnd(&z);
    return rc;
}
