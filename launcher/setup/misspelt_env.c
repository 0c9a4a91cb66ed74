/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares what follows the prefix with the names of the options, and with the two variables that
 * are no options. ctrun's own variables for workers are known, because a worker may start a ctrun.
 */
#include "launcher/setup/misspelt_env.h"

#include "common/env_names.h"
#include "common/handover.h"
#include "common/progress_page.h"
#include "common/suggest.h"
#include "common/text.h"
#include "launcher/cli/option_table.h"
#include "launcher/process/cookie.h"
#include "launcher/worker/worker_env.h"
#include "rendezvous/admission/token.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PET "PET_"
#define CTRUN "CTRUN_"

/* Those that ctrun reads without an option. */
static const char *const read_names[] = {CT_TOKEN_ENV, "CTRUN_PLUGIN_DIR"};
#define READ_NAMES (sizeof(read_names) / sizeof(read_names[0]))

/* Those that ctrun gives to workers, and its prefix for their ports. */
static const char *const given_names[] = {CT_DEVICE_INDEX_ENV, CT_GPU_SHARE_ENV,  CT_HANDOVER_ENV,
                                          CT_PREEMPT_ENV,      CT_PROGRESS_ENV,   CT_SNAPSHOT_ENV,
                                          CT_COOKIE_NAME,      CT_GENERATION_ENV, CT_WARM_ENV};
#define GIVEN_NAMES (sizeof(given_names) / sizeof(given_names[0]))

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_in(const char *const *names, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

/* Is `name` the option's, in capital letters and with underscores? */
static bool is_of_option(const char *option, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = option[i] == '-' ? '_' : (char)toupper((unsigned char)option[i]);
        if (c == '\0' || c != name[i]) {
            return false;
        }
    }
    return option[len] == '\0';
}

/* The name of the variable of a word that was suggested: an option or one of read_names. */
static void write_meant(const char *word, char out[CT_SUGGEST_MAX_LEN + sizeof(PET)])
{
    for (size_t i = 0; i < READ_NAMES; i++) {
        if (word == read_names[i] + strlen(CTRUN)) {
            (void)snprintf(out, CT_SUGGEST_MAX_LEN + sizeof(PET), "%s", read_names[i]);
            return;
        }
    }
    (void)snprintf(out, CT_SUGGEST_MAX_LEN + sizeof(PET), PET "%s", word);
    for (char *p = out; *p != '\0'; p++) {
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    }
}

/* Gives the name that was meant by a variable. False: it is right, or somebody else's. */
static bool find_meant(const char *name, size_t len, char out[CT_SUGGEST_MAX_LEN + sizeof(PET)])
{
    bool pet = begins(name, PET);
    size_t prefix = pet ? strlen(PET) : strlen(CTRUN);
    if ((!pet && !begins(name, CTRUN)) || len <= prefix || begins(name, CT_PORT_ENV_PREFIX) ||
        is_in(read_names, READ_NAMES, name, len) || is_in(given_names, GIVEN_NAMES, name, len)) {
        return false;
    }
    struct ct_suggestion nearest = ct_suggestion_for(name + prefix, len - prefix);
    for (size_t i = 0; i < READ_NAMES; i++) {
        ct_suggestion_offer(&nearest, read_names[i] + strlen(CTRUN));
    }
    for (size_t i = 0; i < ct_option_count; i++) {
        const struct ct_option_spec *spec = &ct_option_table[i];
        if (pet && is_of_option(spec->name, name + prefix, len - prefix)) {
            return false;
        }
        if (!spec->no_env && spec->help != NULL) {
            ct_suggestion_offer(&nearest, spec->name);
        }
    }
    if (nearest.name == NULL) {
        return false;
    }
    write_meant(nearest.name, out);
    return true;
}

int ct_misspelt_env(char *const *env, char lines[CT_MISSPELT_ENV_LINES][CT_MISSPELT_ENV_MAX])
{
    int count = 0;
    for (; *env != NULL && count < CT_MISSPELT_ENV_LINES; env++) {
        size_t len = strcspn(*env, "=");
        char meant[CT_SUGGEST_MAX_LEN + sizeof(PET)];
        bool is_set = (*env)[len] == '=' && (*env)[len + 1] != '\0';
        if (is_set && find_meant(*env, len, meant)) {
            (void)snprintf(lines[count], CT_MISSPELT_ENV_MAX,
                           "the variable %.*s has no effect; did you mean %s?",
                           len < 80 ? (int)len : 80, *env, meant);
            ct_text_clean(lines[count++]);
        }
    }
    return count;
}
