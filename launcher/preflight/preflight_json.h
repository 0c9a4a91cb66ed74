/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine as JSON, in which form the machines of a job tell each other what they have found, and
 * the part "preflight" of a report (man/ctreport.5). Pure.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_JSON_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_JSON_H

#include "common/buf.h"
#include "launcher/preflight/preflight.h"

struct cJSON;

/* Appends all but the links. CT_ENOMEM. */
CT_MUST_CHECK int ct_preflight_machine_write(const struct ct_preflight_machine *machine,
                                             struct ct_buf *out);

/* The reverse: reads a text of another machine. CT_EFORMAT, CT_ENOMEM. */
CT_MUST_CHECK int ct_preflight_machine_read(const char *text, struct ct_preflight_machine *out,
                                            struct ct_err *err);

/* The same for the links, to machines of which there are `count`. */
CT_MUST_CHECK int ct_preflight_links_write(const struct ct_preflight_machine *machine,
                                           struct ct_buf *out);
CT_MUST_CHECK int ct_preflight_links_read(const char *text, int count,
                                          struct ct_preflight_machine *out, struct ct_err *err);

/* Gives *out, which the caller deletes. CT_ENOMEM. */
CT_MUST_CHECK int ct_preflight_report(const struct ct_preflight_machine *machines, int count,
                                      const struct ct_preflight_verdict *verdict,
                                      struct cJSON **out);

#endif
