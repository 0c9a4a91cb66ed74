/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of a job (rendezvous/election/job_record.h) as JSON, in control frames. A record comes
 * from another machine, so it is checked to be one that a host could have written.
 */
#ifndef CT_RENDEZVOUS_CONTROL_JOB_RECORD_JSON_H
#define CT_RENDEZVOUS_CONTROL_JOB_RECORD_JSON_H

#include "common/err.h"
#include "rendezvous/election/job_record.h"

struct cJSON;

/* Gives *out (cJSON_Delete). CT_ENOMEM. */
CT_MUST_CHECK int ct_job_record_to_json(const struct ct_job_record *record, struct cJSON **out);
CT_MUST_CHECK int ct_job_record_voter_to_json(const struct ct_voter *voter, struct cJSON **out);

/* CT_EFORMAT names what is wrong: a field, an id twice or 0, an address that is no numeric one, a
 * generation that does not follow. CT_ENOMEM. *out is undefined after a failure. */
CT_MUST_CHECK int ct_job_record_from_json(const struct cJSON *json, struct ct_job_record *out,
                                          struct ct_err *err);
CT_MUST_CHECK int ct_job_record_voter_from_json(const struct cJSON *json, struct ct_voter *out,
                                                struct ct_err *err);

#endif
