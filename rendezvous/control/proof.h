/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by which an agent and a store show each other that they have the job's token, a
 * message at a time (rendezvous/control/control.h shows all four). Pure.
 *
 * A side without a token asks for no proof. A side with a token requires it.
 */
#ifndef CT_RENDEZVOUS_CONTROL_PROOF_H
#define CT_RENDEZVOUS_CONTROL_PROOF_H

#include "common/err.h"
#include "rendezvous/control/control.h"

struct ct_proof {
    unsigned char server_nonce[CT_NONCE_LEN], agent_nonce[CT_NONCE_LEN];
};

/* Agent: fills in OPEN. CT_EIO without random numbers. */
CT_MUST_CHECK int ct_proof_open(struct ct_proof *proof, struct ct_msg *msg);

/* Server: turns OPEN into CHALLENGE. CT_EPROTO (version) and CT_EIO say what to tell the agent. */
CT_MUST_CHECK int ct_proof_challenge(struct ct_proof *proof, const struct ct_token *token,
                                     struct ct_msg *msg, struct ct_err *err);

/* Agent: turns CHALLENGE into ANSWER. CT_EPERM: the store does not have our token. */
CT_MUST_CHECK int ct_proof_answer(struct ct_proof *proof, const struct ct_token *token,
                                  struct ct_msg *msg, struct ct_err *err);

/* Server: is the ANSWER right? CT_EPERM says what to tell the agent. */
CT_MUST_CHECK int ct_proof_check(const struct ct_proof *proof, const struct ct_token *token,
                                 const struct ct_msg *msg, struct ct_err *err);

#endif
