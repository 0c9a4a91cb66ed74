/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the plug-ins are: in the folder that the environment variable CTRUN_PLUGIN_DIR names (tests
 * and relocated installations), or else beside the running program (the build folder) or where the
 * build installs them.
 */
#ifndef CT_COMMON_PLUGIN_H
#define CT_COMMON_PLUGIN_H

#include "common/err.h"

#include <limits.h>

/* The folder that CTRUN_PLUGIN_DIR names; NULL without one. */
const char *ct_plugin_named_dir(void);

/* Path of the plug-in that is called `file`. CT_EUNSUPPORTED when it is not there, with the places
 * that were looked at: a named folder is the only one. */
CT_MUST_CHECK int ct_plugin_find(const char *file, char path[PATH_MAX], struct ct_err *err);

#endif
