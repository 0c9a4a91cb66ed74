/* SPDX-License-Identifier: Apache-2.0
 *
 * Small helpers over cJSON, with the project's allocator. Bytes that are not printable ASCII are
 * escaped, as keys and names may be any bytes.
 */
#include "rendezvous/wire/json.h"

#include "common/alloc.h"
#include "common/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void ct_json_use_our_memory(void)
{
    static bool done;
    if (!done) {
        cJSON_Hooks hooks = {ct_malloc, ct_free};
        cJSON_InitHooks(&hooks);
        done = true;
    }
}

static void append_escape(uint32_t c, struct ct_buf *out)
{
    if (c > 0xffff) { /* JSON knows such a character as two halves */
        ct_buf_addf(out, "\\u%04x", (unsigned)(0xd800 | (c - 0x10000) >> 10));
        c = 0xdc00 | (c & 0x3ff);
    }
    ct_buf_addf(out, "\\u%04x", (unsigned)c);
}

/* Appends a document, in which only strings have characters beyond ASCII. An unwanted one becomes
 * \uNNNN, which is the same to a program and does nothing to a terminal. A byte that is no UTF-8,
 * which would make the document invalid, becomes U+FFFD. cJSON escapes control characters of ASCII,
 * but for DEL. */
static void append_escaped(const char *text, struct ct_buf *out)
{
    while (*text != '\0') {
        const char *end = text;
        while (*end > 0 && *end < 0x7f) {
            end++;
        }
        ct_buf_add(out, text, (size_t)(end - text));
        text = end;
        uint32_t c = 0;
        size_t len = ct_text_decode(text, &c);
        if (*text != '\0' && (len == 0 || ct_text_unwanted(text) > 0)) {
            append_escape(len > 0 ? c : 0xfffd, out);
        } else if (*text != '\0') {
            ct_buf_add(out, text, len);
        }
        text += *text == '\0' ? 0 : len > 0 ? len : 1;
    }
}

int ct_json_print(const cJSON *json, struct ct_buf *out)
{
    char *text = cJSON_PrintUnformatted(json);
    if (text == NULL) {
        return CT_ENOMEM;
    }
    append_escaped(text, out);
    ct_buf_add(out, "\n", 1);
    cJSON_free(text);
    return ct_buf_status(out);
}

bool ct_json_add_bytes(cJSON *object, const char *name, struct ct_bytes bytes)
{
    static const char hex[] = "0123456789abcdef";
    char text[4 * CT_JSON_KEY_MAX + sizeof("...")];
    char *p = text;
    size_t shown = bytes.len < CT_JSON_KEY_MAX ? bytes.len : CT_JSON_KEY_MAX;
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = bytes.ptr[i];
        if (c == '\\') {
            *p++ = '\\';
            *p++ = '\\';
        } else if (c >= ' ' && c < 0x7f) {
            *p++ = (char)c;
        } else {
            *p++ = '\\';
            *p++ = 'x';
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];
        }
    }
    memcpy(p, shown < bytes.len ? "..." : "", shown < bytes.len ? sizeof("...") : 1);
    return ct_json_add_text(object, name, text);
}

bool ct_json_add_name(cJSON *object, const char *name, const char *text)
{
    return ct_json_add_bytes(object, name,
                             (struct ct_bytes){(const unsigned char *)text, strlen(text)});
}

cJSON *ct_json_append_object(cJSON *array)
{
    cJSON *item = cJSON_CreateObject();
    if (item == NULL || !cJSON_AddItemToArray(array, item)) {
        cJSON_Delete(item);
        return NULL;
    }
    return item;
}

/* cJSON prints 15 digits if the rest is within its tolerance. So about every fifth whole number of
 * 16 digits is printed as its neighbour. */
#define CJSON_EXACT 1e15
/* Whole numbers below have less than 19 digits and fit into 64 bits. */
#define WHOLE_MAX 1e18

bool ct_json_add_number(cJSON *object, const char *name, double value)
{
    bool is_large = fabs(value) >= CJSON_EXACT && fabs(value) < WHOLE_MAX;
    if (is_large && value == trunc(value)) {
        char digits[24];
        (void)snprintf(digits, sizeof(digits), "%" PRId64, (int64_t)value);
        return cJSON_AddRawToObject(object, name, digits) != NULL;
    }
    return cJSON_AddNumberToObject(object, name, value) != NULL;
}

bool ct_json_add_text(cJSON *object, const char *name, const char *text)
{
    return cJSON_AddStringToObject(object, name, text) != NULL;
}

bool ct_json_add_bool(cJSON *object, const char *name, bool value)
{
    return cJSON_AddBoolToObject(object, name, value) != NULL;
}

double ct_json_number(const cJSON *object, const char *name, double otherwise)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsTrue(member)) {
        return 1;
    }
    return cJSON_IsNumber(member) ? member->valuedouble : otherwise;
}

const char *ct_json_text(const cJSON *object, const char *name, const char *otherwise)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(member) && member->valuestring != NULL ? member->valuestring : otherwise;
}
