/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of bytes holds a copy of all watched memory, piece after piece. What a block has written is
 * found by comparing its row with its base, the row after its last fence.
 */
#include "tests/lib/fake_gpu/fake_view.h"

#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 128

static struct piece {
    unsigned char *memory;
    size_t bytes;
} pieces[PIECES_MAX];
static size_t watched; /* bytes of all pieces */

/* Memory with everything that blocks have made visible; NULL = there are no views. */
static unsigned char *known;

void fake_view_add(void *memory, size_t bytes)
{
    for (int i = 0; bytes <= FAKE_VIEW_MAX - watched && i < PIECES_MAX; i++) {
        if (pieces[i].memory == NULL) {
            pieces[i] = (struct piece){memory, bytes};
            watched += bytes;
            return;
        }
    }
}

void fake_view_remove(const void *memory)
{
    for (int i = 0; memory != NULL && i < PIECES_MAX; i++) {
        if (pieces[i].memory == memory) {
            watched -= pieces[i].bytes;
            pieces[i] = (struct piece){0};
        }
    }
}

static void load(unsigned char *row)
{
    for (int i = 0; i < PIECES_MAX; i++) {
        if (pieces[i].memory != NULL) {
            memcpy(row, pieces[i].memory, pieces[i].bytes);
            row += pieces[i].bytes;
        }
    }
}

static void store(const unsigned char *row)
{
    for (int i = 0; i < PIECES_MAX; i++) {
        if (pieces[i].memory != NULL) {
            memcpy(pieces[i].memory, row, pieces[i].bytes);
            row += pieces[i].bytes;
        }
    }
}

/* Returns the place in a row of an address of memory, or NULL. */
static unsigned char *place_of(unsigned char *row, const void *at)
{
    for (int i = 0; i < PIECES_MAX; i++) {
        const unsigned char *p = at;
        if (pieces[i].memory != NULL) {
            if (p >= pieces[i].memory && p < pieces[i].memory + pieces[i].bytes) {
                return row + (p - pieces[i].memory);
            }
            row += pieces[i].bytes;
        }
    }
    return NULL;
}

bool fake_views_begin(void)
{
    if (known != NULL) {
        return false;
    }
    known = malloc(watched + 1);
    load(known);
    return true;
}

void fake_views_end(void)
{
    if (known != NULL) {
        store(known);
        free(known);
        known = NULL;
    }
}

void fake_view_new(struct fake_view *view)
{
    if (known != NULL) {
        view->base = malloc(watched + 1);
        view->mine = malloc(watched + 1);
        memcpy(view->base, known, watched);
        memcpy(view->mine, known, watched);
    }
}

/* Most memory has not changed, so whole lines are compared first. */
#define LINE ((size_t)256)

static void make_known(const struct fake_view *view)
{
    for (size_t line = 0; line < watched; line += LINE) {
        size_t end = watched - line < LINE ? watched : line + LINE;
        if (memcmp(view->mine + line, view->base + line, end - line) == 0) {
            continue;
        }
        for (size_t i = line; i < end; i++) {
            known[i] = view->mine[i] != view->base[i] ? view->mine[i] : known[i];
        }
    }
}

void fake_view_end(struct fake_view *view, bool runs)
{
    if (view->mine == NULL) {
        return;
    }
    if (runs) {
        load(view->mine);
    }
    make_known(view);
    free(view->base);
    free(view->mine);
    *view = (struct fake_view){0};
}

void fake_view_enter(struct fake_view *view)
{
    if (view->mine != NULL) {
        store(view->mine);
    }
}

void fake_view_leave(struct fake_view *view)
{
    if (view->mine != NULL) {
        load(view->mine);
    }
}

void fake_view_fence(struct fake_view *view)
{
    load(view->mine);
    make_known(view);
    memcpy(view->base, known, watched);
    memcpy(view->mine, known, watched);
    store(known);
}

void fake_view_before_atomic(void *at, size_t bytes)
{
    const unsigned char *from = place_of(known, at);
    if (from != NULL) {
        memcpy(at, from, bytes);
    }
}

void fake_view_after_atomic(struct fake_view *view, const void *at, size_t bytes)
{
    unsigned char *rows[] = {known, view->base, view->mine};
    for (int i = 0; i < 3; i++) {
        unsigned char *to = place_of(rows[i], at);
        if (to != NULL) {
            memcpy(to, at, bytes);
        }
    }
}
