/* SPDX-License-Identifier: Apache-2.0
 *
 * getopt_long(3) is not used. It takes any following word as an option's value, does not accept
 * underscores for dashes, suggests nothing, and has global state. torchrun's users expect the rules
 * of Python's argparse.
 */
#include "common/option_parser.h"

#include "common/suggest.h"

#include <string.h>

/* Would argparse take this word for an option? Then it is no value: in "--log-dir --standalone
 * x.py" the user has forgotten the folder. Negative numbers are values. */
static bool looks_like_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && strchr("0123456789.", word[1]) == NULL;
}

static enum ct_option_result take_value(struct ct_option_parser *at, enum ct_option_value kind,
                                        const char *attached)
{
    const char *word = at->argv[at->next];
    at->value = attached;
    if (attached != NULL || kind == CT_VALUE_AFTER_EQUALS) {
        return CT_OPTION_FOUND;
    }
    if (word == NULL || (at->dashed_no_values && looks_like_option(word))) {
        return kind == CT_VALUE_OPTIONAL ? CT_OPTION_FOUND : CT_OPTION_NEEDS_VALUE;
    }
    at->next++;
    at->value = word;
    return CT_OPTION_FOUND;
}

static enum ct_option_result unknown(struct ct_option_parser *at, const char *name, size_t len)
{
    struct ct_suggestion near = ct_suggestion_for(name, len);
    struct ct_option option;
    for (size_t i = 0; (option = at->option_at(i)).name != NULL; i++) {
        if (!option.hidden) {
            ct_suggestion_offer(&near, option.name);
        }
    }
    at->nearest = near.name;
    return CT_OPTION_UNKNOWN;
}

static bool begins_with(const char *name, const char *typed, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (name[i] != (typed[i] == '_' ? '-' : typed[i])) {
            return false;
        }
    }
    return true;
}

/* Finds the one option that has this name, exactly or as an abbreviation. */
static enum ct_option_result find_name(struct ct_option_parser *at, const char *name, size_t len,
                                       struct ct_option *out)
{
    struct ct_option option, found = {0};
    at->fits[1] = NULL;
    at->fits_more = 0;
    for (size_t i = 0; (option = at->option_at(i)).name != NULL; i++) {
        /* An empty name would be an abbreviation of every option. */
        if (len == 0 || !begins_with(option.name, name, len)) {
            continue;
        }
        bool exact = option.name[len] == '\0';
        if (exact || found.name == NULL || (found.yields && !option.yields)) {
            found = option;
            at->index = i;
            at->fits[0] = option.name;
            at->fits[1] = NULL;
            at->fits_more = 0;
        } else if (found.yields == option.yields) {
            at->fits_more += at->fits[1] != NULL;
            at->fits[1] = at->fits[1] != NULL ? at->fits[1] : option.name;
        }
        if (exact) {
            break;
        }
    }
    *out = found;
    if (found.name == NULL) {
        return unknown(at, name, len);
    }
    return at->fits[1] != NULL ? CT_OPTION_AMBIGUOUS : CT_OPTION_FOUND;
}

static enum ct_option_result next_name(struct ct_option_parser *at)
{
    const char *name = at->word + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    struct ct_option option;
    enum ct_option_result result = find_name(at, name, len, &option);
    if (result != CT_OPTION_FOUND) {
        return result;
    }
    if (option.value == CT_VALUE_NONE) {
        return value != NULL ? CT_OPTION_TAKES_NONE : CT_OPTION_FOUND;
    }
    return take_value(at, option.value, value);
}

/* Returns the length of the alias if the word, up to its '=', is the alias; else 0. */
static size_t alias_len(const struct ct_option *option, const char *letters)
{
    size_t len = option->alias != NULL ? strlen(option->alias) : 0;
    bool same = len > 0 && strcspn(letters, "=") == len && memcmp(letters, option->alias, len) == 0;
    return same ? len : 0;
}

static enum ct_option_result next_letter(struct ct_option_parser *at)
{
    const char *letters = at->letters;
    struct ct_option option;
    at->letters = NULL;
    at->index = 0;
    while ((option = at->option_at(at->index)).name != NULL && option.letter != letters[0]) {
        at->index++;
    }
    if (option.name == NULL) {
        return unknown(at, at->word + 1, strcspn(at->word + 1, "="));
    }
    size_t len = letters == at->word + 1 ? alias_len(&option, letters) : 0;
    const char *rest = letters + (len > 0 ? len : 1);
    if (option.value == CT_VALUE_NONE) {
        at->letters = rest[0] != '\0' ? rest : NULL;
        return CT_OPTION_FOUND;
    }
    rest += rest[0] == '=';
    bool attached = rest[-1] == '=' || (rest[0] != '\0' && option.value == CT_VALUE_NEEDED);
    return take_value(at, option.value, attached ? rest : NULL);
}

enum ct_option_result ct_option_next(struct ct_option_parser *at)
{
    at->value = NULL;
    at->nearest = NULL;
    if (at->letters != NULL) {
        return next_letter(at);
    }
    at->word = at->argv[at->next];
    if (at->word == NULL || at->word[0] != '-' || at->word[1] == '\0') {
        return CT_OPTION_END;
    }
    at->next++;
    if (at->word[1] != '-') {
        at->letters = at->word + 1;
        return next_letter(at);
    }
    return at->word[2] == '\0' ? CT_OPTION_END : next_name(at);
}

int ct_option_refuse(const struct ct_option_parser *at, enum ct_option_result result,
                     struct ct_err *err)
{
    if (result == CT_OPTION_NEEDS_VALUE) {
        return ct_err_set(err, CT_EINVAL, "option '%s' needs a value", at->word);
    }
    if (at->nearest == NULL) {
        return ct_err_set(err, CT_EINVAL, "unknown or malformed option '%s'", at->word);
    }
    return ct_err_set(err, CT_EINVAL, "unknown or malformed option '%s' (did you mean --%s?)",
                      at->word, at->nearest);
}
