/* SPDX-License-Identifier: Apache-2.0
 *
 * The four steps of the proof. Each step reads the message that it was given and writes its answer
 * into the same struct.
 */
#include "rendezvous/control/proof.h"

#include <string.h>

int ct_proof_open(struct ct_proof *proof, struct ct_msg *msg)
{
    if (ct_nonce_make(proof->agent_nonce) != 0) {
        return CT_EIO;
    }
    msg->type = CT_MSG_OPEN;
    msg->version = CT_CONTROL_VERSION;
    memcpy(msg->nonce, proof->agent_nonce, sizeof(msg->nonce));
    return 0;
}

int ct_proof_challenge(struct ct_proof *proof, const struct ct_token *token, struct ct_msg *msg,
                       struct ct_err *err)
{
    if (msg->version != CT_CONTROL_VERSION) {
        return ct_err_set(err, CT_EPROTO,
                          "it speaks version %d of the agents' protocol, this store %d; use the "
                          "same ctrun on every node",
                          msg->version, CT_CONTROL_VERSION);
    }
    if (ct_nonce_make(proof->server_nonce) != 0) {
        return ct_err_set(err, CT_EIO, "the store has no random numbers to challenge it with");
    }
    memcpy(proof->agent_nonce, msg->nonce, sizeof(proof->agent_nonce));
    msg->type = CT_MSG_CHALLENGE;
    memcpy(msg->nonce, proof->server_nonce, sizeof(msg->nonce));
    msg->has_answer = token != NULL;
    if (token != NULL) {
        ct_token_answer(token, CT_ROLE_SERVER, proof->server_nonce, proof->agent_nonce,
                        msg->answer);
    }
    return 0;
}

int ct_proof_answer(struct ct_proof *proof, const struct ct_token *token, struct ct_msg *msg,
                    struct ct_err *err)
{
    memcpy(proof->server_nonce, msg->nonce, sizeof(proof->server_nonce));
    if (token != NULL &&
        (!msg->has_answer || !ct_token_verify(token, CT_ROLE_SERVER, proof->server_nonce,
                                              proof->agent_nonce, msg->answer))) {
        return ct_err_set(err, CT_EPERM, "it does not have this job's token");
    }
    msg->type = CT_MSG_ANSWER;
    msg->has_answer = token != NULL;
    if (token != NULL) {
        ct_token_answer(token, CT_ROLE_AGENT, proof->server_nonce, proof->agent_nonce, msg->answer);
    }
    return 0;
}

int ct_proof_check(const struct ct_proof *proof, const struct ct_token *token,
                   const struct ct_msg *msg, struct ct_err *err)
{
    if (token == NULL) {
        return 0;
    }
    if (!msg->has_answer) {
        return ct_err_set(err, CT_EPERM,
                          "it has no token, and this job needs one (--token-file or CTRUN_TOKEN)");
    }
    if (!ct_token_verify(token, CT_ROLE_AGENT, proof->server_nonce, proof->agent_nonce,
                         msg->answer)) {
        return ct_err_set(err, CT_EPERM, "its token is not the job's");
    }
    return 0;
}
