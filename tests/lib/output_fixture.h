/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the output share: forked writers play the workers; a pipe, socket, file or
 * nothing plays ctrun's stdout, read by the test on the same loop.
 */
#ifndef CT_TESTS_LIB_OUTPUT_FIXTURE_H
#define CT_TESTS_LIB_OUTPUT_FIXTURE_H

#include "launcher/output/output_uv.h"

#include "tests/lib/ct_test.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#define STREAMS_MAX 512

struct fixture {
    uv_loop_t loop;
    struct ct_output *output;
    struct ct_log log;
    int logged;
    char log_line[CT_LOG_LINE_MAX];
    int out[2], err[2]; /* read end, write end */
    uv_poll_t reader;   /* of out[0] */
    uv_timer_t timer;   /* looks whether the writers have ended */
    size_t gulp;        /* bytes it takes at a time */
    struct ct_buf seen;
    struct ct_output_stream *streams[STREAMS_MAX];
    int child_fds[STREAMS_MAX];
    pid_t writers[STREAMS_MAX];
    int count;
    bool resolved, closed, alarmed;
};

/* Opens f->output on these descriptors, and the loop. */
void fixture_open(struct fixture *f, int out_fd, int err_fd);

/* stdout and stderr are pipes; stderr is read at the end only. The caller frees it. */
struct fixture *fixture_new(void);

/* Lets the loop read stdout, f->gulp bytes at a time, into f->seen. */
void fixture_read(struct fixture *f);

/* A callback: *(bool *)data = true. */
void fixture_set_flag(void *data);

/* As ctrun does, only when all writers have ended: a stream that is silent for CT_OUTPUT_LINGER_MS
 * is cut off then, which a writer on a busy machine must not be. */
void fixture_drain(struct fixture *f, int64_t timeout_ms);

/* Frees the streams, checks that the writers ended well, closes the output. */
void fixture_close(struct fixture *f, int64_t timeout_ms);

/* Closes all and the loop; everything that came is in f->seen afterwards. */
void fixture_finish(struct fixture *f);

void fixture_free(struct fixture *f);

/* Opens a stream (to stdout, no prefix, unless said otherwise); returns its index. */
int fixture_stream(struct fixture *f, struct ct_output_stream_options options);

void fixture_write(int fd, const char *text);

/* Forks a writer of `lines` lines "<n> xxx..." of varying length, in odd pieces. It adds up what it
 * has written in *progress (shared memory, may be NULL). */
void fixture_writer(struct fixture *f, int at, int lines, volatile size_t *progress);

/* Asserts that every line is whole, of one worker, and in that worker's order; returns how many
 * there are. */
int fixture_check_lines(const struct ct_buf *seen, int workers);

/* Streams with prefixes for this many workers, each with a writer. */
void fixture_ranks(struct fixture *f, int workers, int lines);

#endif
