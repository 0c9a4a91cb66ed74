/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --help: the usual options on one screen, one screen for each topic, and a search.
 * Made from the option table. Pure.
 */
#ifndef CT_LAUNCHER_CLI_HELP_H
#define CT_LAUNCHER_CLI_HELP_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/cli/options.h"

#include <stdbool.h>

/* Is `word` a topic, "all", or an option: its long name (dashes or underscores), "--name" or "-x"?
 * Or does a word of a topic or of an option's help begin with it? */
bool ct_help_knows(const char *word);

/* Room for every word that is suggested. */
#define CT_HELP_WORD_MAX 65

/* The topic, the option, or the word of an option's name that may be meant by a word of which there
 * is no help; NULL = none. The text may be in `kept`, which is the caller's. */
const char *ct_help_nearest(const char *word, char kept[CT_HELP_WORD_MAX]);

/* The help on `word`, of which ct_help_knows(); NULL = the usual options. CT_ENOMEM. */
CT_MUST_CHECK int ct_help_print(const char *word, struct ct_buf *out);

/* What the options ask for instead of a job: --help, --version or a completion script. CT_ENOMEM.
 */
CT_MUST_CHECK int ct_help_about(const struct ct_options *options, struct ct_buf *out);

/* Adds each topic with a blank in front. */
void ct_help_topics(struct ct_buf *out);

#endif
