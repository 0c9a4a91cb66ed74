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

/* Gives the path of the plug-in that is called `file`. CT_EUNSUPPORTED when it is not there; the
 * text says where it was looked for. With CTRUN_PLUGIN_DIR no other folder is looked at. */
CT_MUST_CHECK int ct_plugin_find(const char *file, char path[PATH_MAX], struct ct_err *err);

#endif
