/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --rdzv-conf: "KEY=VALUE,KEY=VALUE", by torchrun's grammar.
 */
#ifndef CT_LAUNCHER_RDZV_CONF_H
#define CT_LAUNCHER_RDZV_CONF_H

#include "common/err.h"

/* Blanks around items, keys and values do not count, nor does one pair of quotes around the whole
 * (scripts quote twice). Keys that mean nothing here are accepted, as torchrun does: on one machine
 * nobody is waited for, so all of its timeouts mean nothing. CT_EFORMAT for an item that is not
 * KEY=VALUE, CT_EINVAL for a bad value, CT_EUNSUPPORTED for a store that is elsewhere. */
CT_MUST_CHECK int ct_rdzv_conf_check(const char *text, struct ct_err *err);

#endif
