/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the last whole line that a probe has written. Fields that are absent read as "", and a
 * probe that wrote no JSON object has no result.
 */
#include "launcher/preflight/preflight_outcome.h"

#include "rendezvous/wire/json.h"

#include <string.h>

/* Where the last whole line of the text begins, or the text if it has none. */
static const char *last_line(const char *text)
{
    const char *line = text;
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        line = at;
    }
    return line;
}

int ct_preflight_outcome_read(const char *text, struct ct_preflight_outcome *out,
                              struct ct_err *err)
{
    cJSON *root = cJSON_Parse(last_line(text));
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return ct_err_set(err, CT_EFORMAT, "it has written no result");
    }
    const cJSON *others = cJSON_GetObjectItemCaseSensitive(root, "others_unfit");
    *out = (struct ct_preflight_outcome){
        .root = root,
        .broken = ct_json_text(root, "broken", ""),
        .unfit = ct_json_text(root, "unfit", ""),
        .advice = ct_json_text(root, "advice", ""),
        .others_unfit = cJSON_IsTrue(others) != 0,
        .table = ct_json_text(root, "table", ""),
        .summary = ct_json_text(root, "summary", ""),
        .warnings = ct_json_text(root, "warnings", ""),
        .report = cJSON_GetObjectItemCaseSensitive(root, "report"),
    };
    return 0;
}

void ct_preflight_outcome_fini(struct ct_preflight_outcome *outcome)
{
    cJSON_Delete(outcome->root);
    *outcome = (struct ct_preflight_outcome){0};
}
