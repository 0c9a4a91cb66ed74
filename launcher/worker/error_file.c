/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers write the file, so it is hostile: it may be of any kind, size and content. What is shown
 * of it is cut from the front, because a Python traceback ends with the error itself.
 *
 * Failure modes: a file that is missing or no JSON is an error, which callers mostly ignore: many
 * programs write none.
 */
#include "launcher/worker/error_file.h"

#include "common/alloc.h"
#include "common/file.h"
#include "rendezvous/wire/json.h"

#include <string.h>

static int parse(const char *path, cJSON **out, struct ct_err *err)
{
    struct ct_buf bytes = CT_BUF_INIT;
    int rc = ct_file_read_regular(path, CT_ERROR_FILE_MAX, &bytes, err);
    if (rc == 0) {
        ct_json_use_our_memory();
        cJSON *json = cJSON_ParseWithLength((const char *)ct_buf_bytes(&bytes), bytes.len);
        if (!cJSON_IsObject(json)) {
            rc = ct_err_set(err, CT_EFORMAT, "%s is no JSON object", path);
            cJSON_Delete(json);
        } else {
            *out = json;
        }
    }
    ct_buf_fini(&bytes);
    return rc;
}

/* Copies the end of `text`, because a Python traceback ends with the exception. The copy does not
 * begin inside a UTF-8 sequence. NULL when memory is out. */
static char *copy_end(const char *text)
{
    size_t len = strlen(text);
    if (len <= CT_ERROR_FILE_SHOWN) {
        return ct_strdup(text);
    }
    text += len - CT_ERROR_FILE_SHOWN;
    while (((unsigned char)*text & 0xc0) == 0x80) {
        text++;
    }
    return ct_asprintf("...%s", text);
}

int ct_error_file_read(const char *path, struct ct_error_file *out, struct ct_err *err)
{
    struct ct_error_file file = {0};
    cJSON *json = NULL;
    int rc = parse(path, &json, err);
    if (rc != 0) {
        return rc;
    }
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(json, "message");
    const cJSON *text =
        cJSON_IsObject(message) ? cJSON_GetObjectItemCaseSensitive(message, "message") : message;
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    const cJSON *stack = cJSON_GetObjectItemCaseSensitive(extra, "py_callstack");
    /* Programs that are not Python leave it empty. */
    bool has_stack = cJSON_IsString(stack) && stack->valuestring[0] != '\0';
    if (!cJSON_IsString(text)) {
        rc = ct_err_set(err, CT_EFORMAT, "%s has no message", path);
    } else {
        file.message = copy_end(text->valuestring);
        file.traceback = has_stack ? copy_end(stack->valuestring) : NULL;
        if (file.message == NULL || (has_stack && file.traceback == NULL)) {
            rc = ct_err_set(err, CT_ENOMEM, "%s: out of memory", path);
        }
    }
    cJSON_Delete(json);
    if (rc != 0) {
        ct_error_file_fini(&file);
        return rc;
    }
    *out = file;
    return 0;
}

void ct_error_file_fini(struct ct_error_file *file)
{
    if (file != NULL) {
        ct_free(file->message);
        ct_free(file->traceback);
        *file = (struct ct_error_file){0};
    }
}

int ct_error_file_copy(const char *from, const char *to, int exit_code, struct ct_err *err)
{
    cJSON *json = NULL;
    int rc = parse(from, &json, err);
    if (rc != 0) {
        return rc;
    }
    cJSON *message = cJSON_GetObjectItemCaseSensitive(json, "message");
    char *text = NULL;
    bool added = true;
    if (cJSON_IsObject(message)) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "errorCode");
        added = cJSON_AddNumberToObject(message, "errorCode", exit_code) != NULL;
    }
    if (added) {
        text = cJSON_PrintUnformatted(json);
    }
    rc = text != NULL ? ct_file_replace(to, text, strlen(text), err)
                      : ct_err_set(err, CT_ENOMEM, "%s: out of memory", to);
    cJSON_free(text);
    cJSON_Delete(json);
    return rc;
}
