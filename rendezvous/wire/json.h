/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers on top of cJSON for our JSON documents.
 */
#ifndef CT_RENDEZVOUS_WIRE_JSON_H
#define CT_RENDEZVOUS_WIRE_JSON_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/wire/proto.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Bytes of a key shown in a document; the rest is cut. */
#define CT_JSON_KEY_MAX 256

/* Makes cJSON allocate through common/alloc.h. cJSON has one table of functions per process, which
 * the first call sets. Call it before a document is made or read. After the first call, several
 * threads may use cJSON. */
void ct_json_use_our_memory(void);

/* Appends the document and a newline. Characters that a terminal must not get (ct_text_unwanted())
 * are written as \uNNNN. CT_ENOMEM. */
CT_MUST_CHECK int ct_json_print(const cJSON *json, struct ct_buf *out);

/* Adds a member for bytes that may be anything, such as a key: printable ASCII as it is, a
 * backslash doubled, any other byte as \xNN (JSON text must be Unicode), "..." where it was cut.
 * False when memory is out. */
CT_MUST_CHECK bool ct_json_add_bytes(cJSON *object, const char *name, struct ct_bytes bytes);

/* The same for a text, such as a name from a command line. */
CT_MUST_CHECK bool ct_json_add_name(cJSON *object, const char *name, const char *text);

/* Appends an empty object to `array`, which then owns it. NULL when memory is out. */
CT_MUST_CHECK cJSON *ct_json_append_object(cJSON *array);

/* As cJSON's, false when memory is out. Whole numbers are written with all their digits. In the
 * document, one of 16 digits or more is raw text (cJSON_IsRaw()) until it is printed. */
CT_MUST_CHECK bool ct_json_add_number(cJSON *object, const char *name, double value);
CT_MUST_CHECK bool ct_json_add_text(cJSON *object, const char *name, const char *text);
CT_MUST_CHECK bool ct_json_add_bool(cJSON *object, const char *name, bool value);

/* ---- reading hostile documents: each accepts NULL for `object` ------------------------------ */

/* The member if it is a number, 1 if it is true, else `otherwise`. */
double ct_json_number(const cJSON *object, const char *name, double otherwise);

/* The member when it is text, else `otherwise`. Borrowed from the document. */
const char *ct_json_text(const cJSON *object, const char *name, const char *otherwise);

#endif
