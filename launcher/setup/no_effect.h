/* SPDX-License-Identifier: Apache-2.0
 *
 * Options on the command line that change nothing in this job, such as a local rank that it does
 * not have. Pure.
 */
#ifndef CT_LAUNCHER_SETUP_NO_EFFECT_H
#define CT_LAUNCHER_SETUP_NO_EFFECT_H

#include "launcher/cli/options.h"
#include "launcher/setup/resolve.h"

#define CT_NO_EFFECT_LINES 16
#define CT_NO_EFFECT_MAX 192

/* Gives one line for each such option, and returns their number. PET_ variables give no line,
 * because they are set for many jobs. */
int ct_no_effect(const struct ct_options *options, const struct ct_resolved *resolved,
                 char lines[CT_NO_EFFECT_LINES][CT_NO_EFFECT_MAX]);

#endif
