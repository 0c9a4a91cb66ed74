/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a command line against a table of options. A name may be written with dashes or underscores
 * and be cut short; its value follows after '=' or as the next word; letters may be bundled, as in
 * "-mr3". The messages are up to the program, unless it uses ct_option_refuse().
 *
 *     struct ct_option_parser at = {.option_at = option_at, .argv = argv, .next = 1};
 *     enum ct_option_result result;
 *     while ((result = ct_option_next(&at)) == CT_OPTION_FOUND) {
 *         ... at.index, at.value ...
 *     }
 *     if (result != CT_OPTION_END) ... a message ...
 */
#ifndef CT_COMMON_OPTION_PARSER_H
#define CT_COMMON_OPTION_PARSER_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

enum ct_option_value {
    CT_VALUE_NONE,
    CT_VALUE_NEEDED,
    CT_VALUE_AFTER_EQUALS, /* it may be left out; the next word is never the value */
    CT_VALUE_OPTIONAL,     /* it may be left out; the next word is the value unless it looks like an
                              option */
};

struct ct_option {
    const char *name;  /* with dashes, without "--"; NULL = there are no more options */
    char letter;       /* 0 = none */
    const char *alias; /* several letters after one dash, such as "np"; NULL = none */
    enum ct_option_value value;
    bool yields; /* an abbreviation that also fits another option means the other one */
    bool hidden; /* not suggested */
};

enum ct_option_result {
    CT_OPTION_FOUND,
    CT_OPTION_END,
    CT_OPTION_UNKNOWN,
    CT_OPTION_AMBIGUOUS,
    CT_OPTION_NEEDS_VALUE,
    CT_OPTION_TAKES_NONE,
};

struct ct_option_parser {
    /* Set by the caller. */
    struct ct_option (*option_at)(size_t index);
    char *const *argv;     /* ends with NULL */
    int next;              /* the word to read next */
    bool dashed_no_values; /* a word that looks like an option is not the value of the option before
                              it */

    /* What ct_option_next() has read. */
    const char *word;    /* as typed. At the end it is "--" (`next` is behind it), or the first word
                            that is no option, or NULL */
    size_t index;        /* of the option, even if its value is wrong */
    const char *value;   /* NULL = none */
    const char *nearest; /* of an unknown option: the name to suggest, or NULL */
    const char *fits[2]; /* of an ambiguous one: two names that it fits */
    size_t fits_more;    /* how many others it fits */
    const char *letters; /* still to be read of a bundle; NULL = none */
};

enum ct_option_result ct_option_next(struct ct_option_parser *at);

/* The messages of programs that have none of their own. CT_EINVAL. */
CT_MUST_CHECK int ct_option_refuse(const struct ct_option_parser *at, enum ct_option_result result,
                                   struct ct_err *err);

#endif
