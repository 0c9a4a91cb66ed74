/* SPDX-License-Identifier: Apache-2.0
 *
 * What the live page shows of one worker. Pure.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_RANK_H
#define CT_RENDEZVOUS_HTTP_PAGE_RANK_H

#include "rendezvous/http/http_answer.h"

#include <stdbool.h>

#define CT_PAGE_RANK_PATH "/page/rank/"

/* Answers CT_PAGE_RANK_PATH JOB/RANK with the worker's row and, for those who are trusted, the last
 * lines that it wrote before it failed: docs/PROTOCOL.md. 404 when nothing is known of it. There is
 * always an answer: a 500 without a body when memory is out. */
void ct_page_rank_answer(const struct ct_http_source *source, bool trusted, const char *path,
                         struct ct_http_answer *out);

/* Reads "JOB/RANK". Returns false if the text is anything else. */
bool ct_page_rank_parse(const char *text, int *job, int *rank);

#endif
