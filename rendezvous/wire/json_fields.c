/* SPDX-License-Identifier: Apache-2.0
 *
 * One function for each direction walks over the table. Reading names the field that is wrong.
 */
#include "rendezvous/wire/json_fields.h"

#include "common/alloc.h"
#include "common/text.h"
#include "rendezvous/wire/json.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

/* ---- writing -------------------------------------------------------------------------------- */

static bool add_text(cJSON *object, const char *name, const char *text)
{
    cJSON *item = cJSON_AddStringToObject(object, name, text);
    if (item != NULL) {
        ct_text_make_utf8(item->valuestring);
    }
    return item != NULL;
}

static bool add_hex(cJSON *object, const char *name, const unsigned char *bytes, size_t len)
{
    char *text = ct_malloc(2 * len + 1);
    bool ok = text != NULL &&
              ct_json_add_text(object, name, sodium_bin2hex(text, 2 * len + 1, bytes, len));
    ct_free(text);
    return ok;
}

static bool write_field(cJSON *object, const struct ct_json_field *field, const void *from)
{
    const void *at = (const char *)from + field->offset;
    switch (field->kind) {
    case CT_JSON_TEXT:
    case CT_JSON_CUT:
        return add_text(object, field->name, at);
    case CT_JSON_OWNED: {
        const char *text = *(char *const *)at;
        return text == NULL || add_text(object, field->name, text);
    }
    case CT_JSON_INT:
        return ct_json_add_number(object, field->name, *(const int *)at);
    case CT_JSON_I64:
        return ct_json_add_number(object, field->name, (double)*(const int64_t *)at);
    case CT_JSON_PORT:
        return ct_json_add_number(object, field->name, *(const uint16_t *)at);
    case CT_JSON_REAL:
        return isnan(*(const double *)at)
                   ? cJSON_AddNullToObject(object, field->name) != NULL
                   : ct_json_add_number(object, field->name, *(const double *)at);
    case CT_JSON_BOOL:
        return ct_json_add_bool(object, field->name, *(const bool *)at);
    case CT_JSON_HEX:
        return add_hex(object, field->name, at, field->size);
    case CT_JSON_NAME: {
        int value = *(const int *)at;
        CT_ASSERT(value >= 0 && (size_t)value < field->size);
        return ct_json_add_text(object, field->name, field->names[value]);
    }
    }
    return false;
}

int ct_json_write_fields(struct cJSON *object, const struct ct_json_field *fields, size_t count,
                         unsigned long mask, const void *from)
{
    for (size_t i = 0; i < count; i++) {
        if ((fields[i].on & mask) != 0 && !write_field(object, &fields[i], from)) {
            return CT_ENOMEM;
        }
    }
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int wrong(const struct ct_json_field *field, const char *how, struct ct_err *err)
{
    return ct_err_set(err, CT_EFORMAT, "field \"%s\" %s", field->name, how);
}

static int read_text(const cJSON *item, const struct ct_json_field *field, void *at,
                     struct ct_err *err)
{
    if (!cJSON_IsString(item) || item->valuestring == NULL) {
        return wrong(field, "must be a text", err);
    }
    size_t len = strlen(item->valuestring);
    if (field->kind == CT_JSON_OWNED) {
        char *copy = ct_strndup(item->valuestring, field->size);
        if (copy == NULL) {
            return CT_ENOMEM;
        }
        ct_free(*(char **)at);
        *(char **)at = copy;
        return 0;
    }
    if (len >= field->size) {
        if (field->kind == CT_JSON_TEXT) {
            return wrong(field, "is too long", err);
        }
        len = field->size - 1;
    }
    memcpy(at, item->valuestring, len);
    ((char *)at)[len] = '\0';
    return 0;
}

static int read_number(const cJSON *item, const struct ct_json_field *field, void *at,
                       struct ct_err *err)
{
    int64_t max = field->kind == CT_JSON_PORT ? UINT16_MAX : field->max;
    int64_t min = field->kind == CT_JSON_PORT ? 0 : field->min;
    if (!cJSON_IsNumber(item)) {
        return wrong(field, "must be a number", err);
    }
    double value = item->valuedouble;
    /* Written like this, the condition also refuses a NaN. */
    if (!(value >= (double)min && value <= (double)max)) {
        return wrong(field, "is out of range", err);
    }
    int64_t whole = (int64_t)value;
    if ((double)whole != value) {
        return wrong(field, "must be a whole number", err);
    }
    if (field->kind == CT_JSON_PORT) {
        *(uint16_t *)at = (uint16_t)whole;
    } else if (field->kind == CT_JSON_INT) {
        *(int *)at = (int)whole;
    } else {
        *(int64_t *)at = whole;
    }
    return 0;
}

/* Numbers must be finite: cJSON reads 1e999 as infinity. */
static int read_real(const cJSON *item, const struct ct_json_field *field, double *at,
                     struct ct_err *err)
{
    if (cJSON_IsNull(item)) {
        *at = NAN;
        return 0;
    }
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) {
        return wrong(field, "must be a finite number or null", err);
    }
    if (field->min < field->max &&
        (item->valuedouble < (double)field->min || item->valuedouble > (double)field->max)) {
        return wrong(field, "is out of range", err);
    }
    *at = item->valuedouble;
    return 0;
}

static int read_hex(const cJSON *item, const struct ct_json_field *field, void *at,
                    struct ct_err *err)
{
    const char *text = cJSON_IsString(item) ? item->valuestring : NULL;
    size_t digits = 2 * field->size, used = 0;
    const char *end = NULL;
    if (text == NULL || strlen(text) != digits ||
        sodium_hex2bin(at, field->size, text, digits, NULL, &used, &end) != 0 ||
        used != field->size || end != text + digits) {
        return wrong(field, "must have the right number of hexadecimal digits", err);
    }
    return 0;
}

static int read_name(const cJSON *item, const struct ct_json_field *field, void *at,
                     struct ct_err *err)
{
    const char *text = cJSON_IsString(item) ? item->valuestring : NULL;
    for (size_t i = 0; text != NULL && i < field->size; i++) {
        if (strcmp(text, field->names[i]) == 0) {
            *(int *)at = (int)i;
            return 0;
        }
    }
    return wrong(field, "has an unknown value", err);
}

static int read_field(const cJSON *object, const struct ct_json_field *field, void *to,
                      struct ct_err *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field->name);
    void *at = (char *)to + field->offset;
    if (item == NULL) {
        return field->kind == CT_JSON_OWNED ? 0 : wrong(field, "is missing", err);
    }
    switch (field->kind) {
    case CT_JSON_TEXT:
    case CT_JSON_CUT:
    case CT_JSON_OWNED:
        return read_text(item, field, at, err);
    case CT_JSON_INT:
    case CT_JSON_I64:
    case CT_JSON_PORT:
        return read_number(item, field, at, err);
    case CT_JSON_REAL:
        return read_real(item, field, at, err);
    case CT_JSON_BOOL:
        if (!cJSON_IsBool(item)) {
            return wrong(field, "must be true or false", err);
        }
        *(bool *)at = cJSON_IsTrue(item);
        return 0;
    case CT_JSON_HEX:
        return read_hex(item, field, at, err);
    case CT_JSON_NAME:
        return read_name(item, field, at, err);
    }
    return CT_EFORMAT;
}

int ct_json_read_fields(const struct cJSON *object, const struct ct_json_field *fields,
                        size_t count, unsigned long mask, void *to, struct ct_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = (fields[i].on & mask) != 0 ? read_field(object, &fields[i], to, err) : 0;
    }
    return rc;
}
