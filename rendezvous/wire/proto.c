/* SPDX-License-Identifier: Apache-2.0
 *
 * One table describes the fields of each operation (CT_OPS). ct_scan() follows it to find the end
 * of a request, and ct_request_decode() to find its parts. The older dialect only numbers the
 * operations in another way.
 */
#include "rendezvous/wire/proto.h"

#include "rendezvous/wire/limits.h"

#include <stdbool.h>
#include <string.h>

struct op_info {
    const char *name;
    const char *fields;
};

static const struct op_info *op_lookup(unsigned char wire)
{
    static const struct op_info ops[] = {
#define OP_ROW(name, value, fields) [value] = {#name, fields},
        CT_OPS(OP_ROW)
#undef OP_ROW
    };
    return wire < sizeof(ops) / sizeof(ops[0]) && ops[wire].name != NULL ? &ops[wire] : NULL;
}

const char *ct_op_name(enum ct_op op)
{
    const struct op_info *info = op_lookup((unsigned char)op);
    return info != NULL ? info->name : "?";
}

static uint32_t load_u32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint64_t load_u64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* ---- dialects ------------------------------------------------------------------------------- */

/* Legacy numbers are those of PyTorch 1.13 and, from 9 on, of versions up to 2.0. PyTorch 2.1
 * renumbered the operations and dropped WATCH_KEY. */
static bool op_from_wire(enum ct_dialect dialect, unsigned char wire, enum ct_op *out)
{
    static const enum ct_op legacy[] = {
        CT_OP_SET,       CT_OP_COMPARE_SET, CT_OP_GET,         CT_OP_ADD,        CT_OP_CHECK,
        CT_OP_WAIT,      CT_OP_GETNUMKEYS,  CT_OP_WATCH_KEY,   CT_OP_DELETE_KEY, CT_OP_APPEND,
        CT_OP_MULTI_GET, CT_OP_MULTI_SET,   CT_OP_CANCEL_WAIT,
    };
    if (dialect == CT_DIALECT_CURRENT) {
        *out = (enum ct_op)wire;
        return wire != CT_OP_WATCH_KEY && op_lookup(wire) != NULL;
    }
    if (wire >= sizeof(legacy) / sizeof(legacy[0])) {
        return false;
    }
    *out = legacy[wire];
    return true;
}

int ct_dialect_detect(const unsigned char *bytes, size_t len, enum ct_dialect *out)
{
    const uint32_t magic = CT_PROTO_MAGIC;
    unsigned char greeting[1 + sizeof(magic)] = {CT_OP_VALIDATE};
    memcpy(greeting + 1, &magic, sizeof(magic));
    size_t have = len < sizeof(greeting) ? len : sizeof(greeting);
    if (memcmp(bytes, greeting, have) != 0) {
        *out = CT_DIALECT_LEGACY;
        return 0;
    }
    if (have < sizeof(greeting)) {
        return CT_SCAN_E_MORE;
    }
    *out = CT_DIALECT_CURRENT;
    return 0;
}

/* ---- scanning ------------------------------------------------------------------------------- */

/* The first byte of a TLS client: a record with its hello. No dialect has such an operation. */
#define TLS_HANDSHAKE 0x16

static int scan_opcode(struct ct_scan *scan, const unsigned char *bytes, size_t len,
                       struct ct_err *err)
{
    if (len < 1) {
        return CT_SCAN_E_MORE;
    }
    enum ct_op op;
    if (!op_from_wire(scan->dialect, bytes[0], &op)) {
        if (scan->dialect == CT_DIALECT_LEGACY && bytes[0] == TLS_HANDSHAKE) {
            return ct_err_set(err, CT_EPROTO,
                              "it speaks TLS, and this port does not: use http:// in place of "
                              "https://, or turn TLS off in that client");
        }
        return ct_err_set(err, CT_EPROTO, "unknown operation %u", (unsigned)bytes[0]);
    }
    scan->op = op;
    scan->field = op_lookup((unsigned char)op)->fields;
    scan->at = 1;
    return 0;
}

static int scan_count(struct ct_scan *scan, const unsigned char *field, struct ct_err *err)
{
    uint64_t count = load_u64(field);
    if (count > CT_MAX_KEYS) {
        return ct_err_set(err, CT_ELIMIT, "%s of %llu keys, more than %zu", ct_op_name(scan->op),
                          (unsigned long long)count, CT_MAX_KEYS);
    }
    scan->at += 8;
    scan->field++;
    if (count == 0) {
        scan->field += strlen(scan->field);
        return 0;
    }
    scan->repeat = scan->field;
    scan->rounds = (size_t)count - 1;
    return 0;
}

/* A length and that many bytes. */
static int scan_string(struct ct_scan *scan, const unsigned char *field, size_t avail,
                       struct ct_err *err)
{
    bool is_key = *scan->field == 'k';
    size_t max = is_key ? CT_MAX_KEY_LEN : CT_MAX_VALUE_LEN;
    uint64_t len = load_u64(field);
    if (len > max) {
        return ct_err_set(err, CT_ELIMIT, "%s with a %s of %llu bytes, more than %zu",
                          ct_op_name(scan->op), is_key ? "key" : "value", (unsigned long long)len,
                          max);
    }
    if (scan->at + 8 + len > CT_MAX_REQUEST_LEN) {
        return ct_err_set(err, CT_ELIMIT, "%s of more than %zu bytes", ct_op_name(scan->op),
                          CT_MAX_REQUEST_LEN);
    }
    if (avail - 8 < len) {
        return CT_SCAN_E_MORE;
    }
    scan->at += 8 + (size_t)len;
    scan->field++;
    return 0;
}

/* Takes the field that scan->field describes; `avail` bytes of it and of what follows have come. */
static int scan_field(struct ct_scan *scan, const unsigned char *field, size_t avail,
                      struct ct_err *err)
{
    char kind = *scan->field;
    size_t fixed = kind == 'm' || kind == 'u' ? 4 : 8;
    if (avail < fixed) {
        return CT_SCAN_E_MORE;
    }
    if (kind == '*') {
        return scan_count(scan, field, err);
    }
    if (kind == 'k' || kind == 'v') {
        return scan_string(scan, field, avail, err);
    }
    if (kind == 'm' && load_u32(field) != CT_PROTO_MAGIC) {
        return ct_err_set(err, CT_EPROTO, "wrong magic 0x%08x", (unsigned)load_u32(field));
    }
    scan->at += fixed;
    scan->field++;
    return 0;
}

void ct_scan_next(struct ct_scan *scan)
{
    *scan = (struct ct_scan){.dialect = scan->dialect};
}

int ct_scan(struct ct_scan *scan, const unsigned char *bytes, size_t len, struct ct_err *err)
{
    int rc = scan->field == NULL ? scan_opcode(scan, bytes, len, err) : 0;
    while (rc == 0) {
        if (*scan->field == '\0') {
            if (scan->rounds == 0) {
                return 0;
            }
            scan->rounds--;
            scan->field = scan->repeat;
        }
        rc = scan_field(scan, bytes + scan->at, len - scan->at, err);
    }
    return rc;
}

/* ---- decoding ------------------------------------------------------------------------------- */

struct ct_bytes ct_request_next(struct ct_bytes *items)
{
    struct ct_bytes item = {items->ptr + 8, (size_t)load_u64(items->ptr)};
    items->ptr += 8 + item.len;
    items->len -= 8 + item.len;
    return item;
}

void ct_request_decode(const struct ct_scan *scan, const unsigned char *bytes,
                       struct ct_request *out)
{
    memset(out, 0, sizeof(*out));
    out->op = scan->op;
    struct ct_bytes rest = {bytes + 1, scan->at - 1};
    const char *field = op_lookup((unsigned char)scan->op)->fields;
    for (bool first_value = true; *field != '\0'; field++) {
        switch (*field) {
        case '*':
            out->count = (size_t)load_u64(rest.ptr);
            out->items = (struct ct_bytes){rest.ptr + 8, rest.len - 8};
            return;
        case 'k':
            out->key = ct_request_next(&rest);
            break;
        case 'v':
            *(first_value ? &out->value : &out->second) = ct_request_next(&rest);
            first_value = false;
            break;
        case 'i':
            out->number = (int64_t)load_u64(rest.ptr);
            break;
        default: /* m, u */
            out->nonce = load_u32(rest.ptr);
            break;
        }
    }
}

/* ---- encoding ------------------------------------------------------------------------------- */

int ct_put_u8(struct ct_buf *buf, uint8_t v)
{
    return ct_buf_append(buf, &v, sizeof(v));
}

int ct_put_u32(struct ct_buf *buf, uint32_t v)
{
    return ct_buf_append(buf, &v, sizeof(v));
}

int ct_put_u64(struct ct_buf *buf, uint64_t v)
{
    return ct_buf_append(buf, &v, sizeof(v));
}

int ct_put_bytes(struct ct_buf *buf, const void *bytes, size_t len)
{
    /* Makes room for both first, so that the buffer never has a length without its bytes. */
    int rc = len <= SIZE_MAX - 8 ? ct_buf_reserve(buf, 8 + len) : CT_ENOMEM;
    if (rc == 0) {
        rc = ct_put_u64(buf, len);
    }
    return rc == 0 ? ct_buf_append(buf, bytes, len) : rc;
}
