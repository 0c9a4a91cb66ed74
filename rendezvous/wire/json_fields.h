/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes structures as JSON objects and reads them back. One table serves both directions, so that
 * what is written is also accepted. Reading is strict: type, range, length and presence of every
 * field.
 */
#ifndef CT_RENDEZVOUS_WIRE_JSON_FIELDS_H
#define CT_RENDEZVOUS_WIRE_JSON_FIELDS_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct cJSON;

enum ct_json_kind {
    CT_JSON_TEXT,  /* char[size]; too long is refused */
    CT_JSON_CUT,   /* char[size]; too long is cut */
    CT_JSON_OWNED, /* char * from common/alloc.h, of which at most `size` bytes are kept; NULL is
                      written as an absent field */
    CT_JSON_INT,   /* int in min..max */
    CT_JSON_I64,   /* int64_t in min..max */
    CT_JSON_PORT,  /* uint16_t */
    CT_JSON_REAL,  /* finite double in min..max, or any if both are 0; null = NAN */
    CT_JSON_BOOL,
    CT_JSON_HEX,  /* unsigned char[size] as 2 * size lower-case digits */
    CT_JSON_NAME, /* int (an enum) as names[value], size = how many */
};

struct ct_json_field {
    unsigned long on; /* bits of the objects that have this field; the caller defines them; not 0 */
    const char *name;
    enum ct_json_kind kind;
    size_t offset, size;
    int64_t min, max;
    const char *const *names;
};

/* The largest whole number up to which a double, and so JSON, is exact. The range of an int64_t
 * field must lie within it. */
#define CT_JSON_INT_MAX (INT64_C(1) << 53)

/* Adds the fields whose `on` has a bit of `mask`. Bytes in texts that are not UTF-8 become '?',
 * since they come from programs and JSON text must be Unicode. CT_ENOMEM. */
CT_MUST_CHECK int ct_json_write_fields(struct cJSON *object, const struct ct_json_field *fields,
                                       size_t count, unsigned long mask, const void *from);

/* The reverse; `to` is written as far as it was read. CT_EFORMAT names the field; CT_ENOMEM. */
CT_MUST_CHECK int ct_json_read_fields(const struct cJSON *object,
                                      const struct ct_json_field *fields, size_t count,
                                      unsigned long mask, void *to, struct ct_err *err);

#endif
