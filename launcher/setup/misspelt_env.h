/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables that look like those of ctrun's options and are none, such as
 * PET_MAX_RESTART. Pure.
 */
#ifndef CT_LAUNCHER_SETUP_MISSPELT_ENV_H
#define CT_LAUNCHER_SETUP_MISSPELT_ENV_H

/* One such variable is a mistake; more of them are rare. */
#define CT_MISSPELT_ENV_LINES 4
#define CT_MISSPELT_ENV_MAX 192

/* Gives one line for each variable that begins with PET_ or CTRUN_ and differs in little from one
 * that ctrun reads, and returns their number. Other variables with these prefixes are somebody
 * else's and give no line. */
int ct_misspelt_env(char *const *env, char lines[CT_MISSPELT_ENV_LINES][CT_MISSPELT_ENV_MAX]);

#endif
