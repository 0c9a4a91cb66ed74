/* SPDX-License-Identifier: Apache-2.0
 *
 * A small parser for the Python dict in the header of a .npy file. Its three keys may come in any
 * order, each once, and no others. Arrays in Fortran order are CT_EUNSUPPORTED. It allocates
 * nothing.
 */
#include "trainer/formats/npy.h"

#include "common/num.h"

#include <stdbool.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_LEN 6

static const struct type {
    const char *descr;
    enum ct_npy_type type;
    size_t item;
} types[] = {
    {"|u1", CT_NPY_U8, 1},  {"|i1", CT_NPY_I8, 1},  {"<i2", CT_NPY_I16, 2},
    {"<u2", CT_NPY_U16, 2}, {"<i4", CT_NPY_I32, 4}, {"<u4", CT_NPY_U32, 4},
    {"<i8", CT_NPY_I64, 8}, {"<u8", CT_NPY_U64, 8}, {"<f4", CT_NPY_F32, 4},
};

/* The rest of the dict's text. */
struct cursor {
    const char *at, *end;
};

static void skip_spaces(struct cursor *c)
{
    while (c->at < c->end && *c->at == ' ') {
        c->at++;
    }
}

/* Consumes `text`, and spaces before it, if it comes next. */
static bool take(struct cursor *c, const char *text)
{
    size_t len = strlen(text);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, text, len) != 0) {
        return false;
    }
    c->at += len;
    return true;
}

/* Reads 'text' without escapes. `out` holds `cap` bytes, with the NUL. */
static bool take_string(struct cursor *c, char *out, size_t cap)
{
    if (!take(c, "'")) {
        return false;
    }
    size_t len = 0;
    for (; c->at < c->end && *c->at != '\'' && len + 1 < cap; c->at++) {
        out[len++] = *c->at;
    }
    out[len] = '\0';
    return c->at < c->end && *c->at++ == '\'';
}

static bool take_size(struct cursor *c, size_t *out)
{
    char digits[20];
    size_t len = 0;
    skip_spaces(c);
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && len + 1 < sizeof digits; c->at++) {
        digits[len++] = *c->at;
    }
    digits[len] = '\0';
    int64_t value;
    if (ct_parse_i64(digits, 1, INT64_MAX, &value) != 0) {
        return false;
    }
    *out = (size_t)value;
    return true;
}

/* Reads "(60000,)" or "(60000, 28, 28)"; with several sizes a comma may follow the last. */
static int take_shape(struct cursor *c, struct ct_npy *npy, struct ct_err *err)
{
    bool ok = take(c, "("), comma = true;
    while (ok && !take(c, ")")) {
        if (npy->dims == CT_NPY_DIMS_MAX) {
            return ct_err_set(err, CT_ELIMIT, "its shape has more than %d dimensions",
                              CT_NPY_DIMS_MAX);
        }
        ok = comma && take_size(c, &npy->dim[npy->dims++]);
        comma = ok && take(c, ",");
    }
    if (!ok || npy->dims == 0 || (npy->dims == 1 && !comma)) {
        return ct_err_set(err, CT_EFORMAT, "its shape is no tuple of sizes from 1");
    }
    return 0;
}

static int take_descr(struct cursor *c, struct ct_npy *npy, struct ct_err *err)
{
    char descr[16];
    if (!take_string(c, descr, sizeof descr)) {
        return ct_err_set(err, CT_EUNSUPPORTED, "its descr is no simple type");
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].descr, descr) == 0) {
            npy->type = types[i].type;
            npy->item = types[i].item;
            return 0;
        }
    }
    return ct_err_set(err, CT_EUNSUPPORTED,
                      "items of type %s: only integers and float32 in little endian order are read",
                      descr);
}

enum { SEEN_DESCR = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4, SEEN_ALL = 7 };

static int take_entry(struct cursor *c, struct ct_npy *npy, unsigned *seen, struct ct_err *err)
{
    char key[16];
    unsigned now = 0;
    int rc = 0;
    bool ok = take_string(c, key, sizeof key) && take(c, ":");
    if (ok && strcmp(key, "descr") == 0) {
        now = SEEN_DESCR;
        rc = take_descr(c, npy, err);
    } else if (ok && strcmp(key, "shape") == 0) {
        now = SEEN_SHAPE;
        npy->dims = 0;
        rc = take_shape(c, npy, err);
    } else if (ok && strcmp(key, "fortran_order") == 0) {
        now = SEEN_ORDER;
        if (take(c, "True")) {
            return ct_err_set(err, CT_EUNSUPPORTED, "its items are in Fortran's order, not in C's");
        }
        ok = take(c, "False");
    }
    if (rc == 0 && (!ok || now == 0 || (*seen & now) != 0)) {
        rc = ct_err_set(err, CT_EFORMAT, "its header is not that of an array");
    }
    *seen |= now;
    return rc;
}

static int read_dict(const char *text, size_t len, struct ct_npy *npy, struct ct_err *err)
{
    struct cursor c = {.at = text, .end = text + len};
    unsigned seen = 0;
    bool more = take(&c, "{");
    while (more && !take(&c, "}")) {
        int rc = take_entry(&c, npy, &seen, err);
        if (rc != 0) {
            return rc;
        }
        if (!take(&c, ",")) {
            more = take(&c, "}");
            break;
        }
    }
    skip_spaces(&c);
    if (!more || seen != SEEN_ALL || c.end - c.at != 1 || *c.at != '\n') {
        return ct_err_set(err, CT_EFORMAT, "its header is not that of an array");
    }
    return 0;
}

int ct_npy_parse(const void *bytes, size_t len, struct ct_npy *out, struct ct_err *err)
{
    const uint8_t *p = bytes;
    struct ct_npy npy = {0};
    if (len < MAGIC_LEN + 4 || memcmp(p, MAGIC, MAGIC_LEN) != 0) {
        return ct_err_set(err, CT_EFORMAT, "not a .npy file");
    }
    unsigned version = p[MAGIC_LEN];
    size_t prefix = MAGIC_LEN + 2 + (version == 1 ? 2 : 4);
    if (version < 1 || version > 3 || p[MAGIC_LEN + 1] != 0) {
        return ct_err_set(err, CT_EUNSUPPORTED, "version %u.%u of the format is not supported",
                          version, p[MAGIC_LEN + 1]);
    }
    if (len < prefix) {
        return ct_err_set(err, CT_EFORMAT, "truncated");
    }
    size_t header = (size_t)p[8] | (size_t)p[9] << 8;
    if (version > 1) {
        header |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    }
    if (header > len - prefix) {
        return ct_err_set(err, CT_EFORMAT, "truncated: its header has %zu bytes", header);
    }
    int rc = read_dict((const char *)p + prefix, header, &npy, err);
    if (rc != 0) {
        return rc;
    }
    size_t total = npy.item;
    npy.count = 1;
    for (size_t i = 0; i < npy.dims; i++) {
        if (!ct_mul_size(total, npy.dim[i], &total)) {
            return ct_err_set(err, CT_ELIMIT, "its shape is larger than memory");
        }
        npy.count *= npy.dim[i];
    }
    if (total != len - prefix - header) {
        return ct_err_set(err, CT_EFORMAT, "%zu bytes follow the header, its shape has %zu",
                          len - prefix - header, total);
    }
    npy.data = p + prefix + header;
    *out = npy;
    return 0;
}

int ct_npy_byte(const struct ct_npy *npy, size_t i, uint8_t *out)
{
    const uint8_t *p = npy->data + i * npy->item;
    /* Only the lowest byte may be set. A negative number fails this check, too, by its sign bit. */
    for (size_t b = 1; b < npy->item; b++) {
        if (p[b] != 0) {
            return CT_ELIMIT;
        }
    }
    if (npy->type == CT_NPY_I8 && p[0] > INT8_MAX) {
        return CT_ELIMIT;
    }
    *out = p[0];
    return 0;
}

float ct_npy_float(const struct ct_npy *npy, size_t i)
{
    const uint8_t *p = npy->data + i * sizeof(float);
    uint32_t bits =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
