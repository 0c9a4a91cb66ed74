/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks and recordings as tools, workers and other machines give them. The first byte says which
 * of them the rest is.
 */
#include "tests/fuzz/fuzz.h"

#include "common/alloc.h"
#include "common/text.h"
#include "launcher/stacks/flight_parse.h"
#include "launcher/stacks/stack.h"
#include "rendezvous/control/stands.h"

#include <string.h>

static void check_stack(const struct ct_stack *stack)
{
    struct ct_buf out = CT_BUF_INIT;
    int frames = 0;
    CT_ASSERT(stack->thread_count <= CT_STACK_THREADS_MAX);
    CT_ASSERT(stack->frame_count <= CT_STACK_FRAMES_MAX);
    CT_ASSERT(stack->thread_count == 0 || stack->main_thread < stack->thread_count);
    for (int i = 0; i < stack->thread_count; i++) {
        CT_ASSERT(stack->threads[i].first == frames);
        frames += stack->threads[i].count;
    }
    CT_ASSERT(frames == stack->frame_count);
    CT_ASSERT(ct_stack_print(stack, "", &out) == 0 && ct_stack_print_where(stack, &out) == 0);
    for (size_t i = 0; i < out.len; i++) {
        unsigned char c = ct_buf_bytes(&out)[i];
        CT_ASSERT(c == '\n' || (c >= ' ' && c != 0x7f));
    }
    ct_buf_fini(&out);
}

/* What is told of a recording can be read again, and be judged. */
static void check_flight(const struct ct_flight *flight)
{
    struct ct_stands told, read;
    struct ct_buf text = CT_BUF_INIT, reason = CT_BUF_INIT;
    int rank;
    CT_ASSERT(ct_stands_init(&told, 2) == 0 && ct_stands_init(&read, 2) == 0);
    CT_ASSERT(ct_flight_copy(flight, &told.flights[0]) == 0);
    CT_ASSERT(ct_stands_encode(&told, &text) == 0 && text.len < CT_STANDS_TEXT_MAX);
    CT_ASSERT(ct_stands_decode(ct_buf_cstr(&text), 0, 2, &read) == 0);
    CT_ASSERT(read.flights[0].known == flight->known || text.len > CT_STANDS_TEXT_MAX / 4);
    CT_ASSERT(ct_stands_judge(&read, &rank, &reason) == 0 && rank < 2);
    ct_stands_fini(&told);
    ct_stands_fini(&read);
    ct_buf_fini(&text);
    ct_buf_fini(&reason);
}

static void take_stands(const char *text)
{
    struct ct_stands stands;
    struct ct_buf reason = CT_BUF_INIT;
    int rank;
    CT_ASSERT(ct_stands_init(&stands, 4) == 0);
    (void)(ct_stands_decode(text, 0, 2, &stands) != 0 ||
           ct_stands_decode(text, 2, 2, &stands) != 0);
    CT_ASSERT(ct_stands_judge(&stands, &rank, &reason) == 0 && rank >= -1 && rank < 4);
    CT_ASSERT((rank >= 0) == (reason.len > 0));
    ct_stands_fini(&stands);
    ct_buf_fini(&reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const parsers[])(const char *text, size_t len, struct ct_stack *out) = {
        ct_stack_parse_faulthandler, ct_stack_parse_py_spy, ct_stack_parse_native};
    struct ct_stack stack = {0};
    struct ct_flight flight = {0};
    if (size == 0) {
        return 0;
    }
    char *text = ct_strndup((const char *)data + 1, size - 1);
    CT_ASSERT(text != NULL);
    size_t len = size - 1, kind = data[0] % 5;
    if (kind < 3) {
        int rc = parsers[kind](text, len, &stack);
        CT_ASSERT((rc == 0) == (stack.frame_count > 0));
        check_stack(&stack);
    } else if (kind == 3) {
        (void)(ct_flight_parse(text, len, &flight) != 0 ||
               ct_flight_parse(text, len, &flight) != 0);
        check_flight(&flight);
    } else {
        take_stands(text);
    }
    ct_stack_fini(&stack);
    ct_flight_fini(&flight);
    ct_free(text);
    return 0;
}
