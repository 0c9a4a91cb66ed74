/* SPDX-License-Identifier: Apache-2.0
 *
 * A libuv loop for one test: runs until a condition holds, and must close clean at the end.
 *
 *     uv_loop_t loop;
 *     ct_loop_begin(&loop);
 *     ... start things that set `done` ...
 *     ct_loop_run_until(&loop, &done);
 *     ... close things ...
 *     ct_loop_end(&loop);
 */
#ifndef CT_TESTS_LIB_LOOP_H
#define CT_TESTS_LIB_LOOP_H

#include <stdbool.h>
#include <uv.h>

void ct_loop_begin(uv_loop_t *loop);

/* Runs the loop until *flag is true. Fails the test after 20 s, which is far beyond anything a test
 * waits for. */
void ct_loop_run_until(uv_loop_t *loop, const bool *flag);

/* Runs what is left (close callbacks) and closes the loop. A handle that is still alive after 20 s
 * fails the test and is printed with its type and state. */
void ct_loop_end(uv_loop_t *loop);

#endif
