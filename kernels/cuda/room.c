/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that grows. What was outgrown is kept until the end, because work that is queued
 * or recorded may still use it.
 */
#include "kernels/cuda/cuda.h"

int ct_cuda_room_get(struct ct_cuda_room *room, size_t bytes, struct ct_err *err)
{
    if (room->capacity >= bytes) {
        return 0;
    }
    void *data = NULL;
    size_t capacity = bytes > 2 * room->capacity ? bytes : 2 * room->capacity;
    CT_CUDA_TRY(err, cudaMalloc(&data, capacity));
    if (room->data != NULL) {
        room->outgrown[room->outgrown_count++] = room->data;
    }
    room->data = data;
    room->capacity = capacity;
    return 0;
}

void ct_cuda_room_free(struct ct_cuda_room *room)
{
    (void)cudaFree(room->data);
    for (size_t i = 0; i < room->outgrown_count; i++) {
        (void)cudaFree(room->outgrown[i]);
    }
    *room = (struct ct_cuda_room){0};
}
