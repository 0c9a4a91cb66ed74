/* SPDX-License-Identifier: Apache-2.0
 *
 * Which GPU a worker uses, and whether it can see the other ones. Pure: facts about the machine go
 * in, an entry of CUDA_VISIBLE_DEVICES comes out.
 *
 *   situation                              mask for each worker     its device's index
 *   GPUs, nothing asked                    no, as torchrun          local rank
 *   --gpu-bind mask, --virtual-local-rank  yes                      0
 *   MIG devices                            yes, unless "none" asked 0
 *   HAMi-core in the container             only if asked, numbers   local rank, or 0
 *   one launcher per rank, one GPU in each no                       0
 *   Slurm with MPS                         no                       0
 *   more workers than GPUs, --share-gpu    as above                 local rank mod GPUs, or 0
 *
 * An entry of an inherited list is passed on unchanged, because it may be a UUID, a number in an
 * order that another program has chosen, or something that only a newer driver understands. Too few
 * GPUs are an error only where the workers are known to need GPUs: other programs must start.
 */
#ifndef CT_LAUNCHER_BINDING_GPU_MASK_H
#define CT_LAUNCHER_BINDING_GPU_MASK_H

#include "common/err.h"
#include "common/log.h"

#include <stdbool.h>
#include <stddef.h>

enum ct_gpu_bind {
    CT_GPU_BIND_UNSET, /* a mask where nothing else works */
    CT_GPU_BIND_NONE,
    CT_GPU_BIND_MASK,
};

/* Borrowed from the environment. */
struct ct_gpu_facts {
    int physical;        /* GPUs that the driver's files show; 0 = none is known */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL = unset */
    const char *mig;     /* list of MIG devices that the container was given; NULL = none */
    bool mig_on;         /* some GPU is cut into MIG devices */
    bool hami;           /* HAMi-core hooks CUDA in this container */
    bool slurm_mps;      /* Slurm has given a part of a GPU through MPS */
};

struct ct_gpu_request {
    enum ct_gpu_bind bind;
    bool share;              /* --share-gpu */
    bool virtual_local_rank; /* each worker is to see one device */
    bool wants_gpus;         /* the number of workers was meant as a number of GPUs */
    int workers;             /* of this launcher, at least 1 */
    int ranks_here;          /* of all launchers of this job on this machine, at least `workers` */
};

#define CT_GPU_NOTE_MAX 256

/* What holds for all workers; zeroed memory assigns no device. Borrows the list from the facts. */
struct ct_gpu_masks {
    int devices; /* that workers are spread over; 0 = none is assigned */
    int ranks_here;
    bool masked;
    bool numbers;               /* masks must be numbers, even if the list has UUIDs */
    bool alike;                 /* every worker uses its device 0 */
    const char *list;           /* entries for the masks; NULL = counted from 0 */
    bool shared;                /* several workers use one device */
    char note[CT_GPU_NOTE_MAX]; /* for the user; "" = nothing to say */
    enum ct_log_level note_level;
};

/* One worker's part. */
struct ct_gpu_share {
    bool assigned;     /* if not, the other fields mean nothing */
    int index;         /* the device's, among those that the worker sees */
    int ranks;         /* that use this device, itself included */
    const char *token; /* its CUDA_VISIBLE_DEVICES, not terminated; NULL = as inherited */
    size_t token_len;
    bool counted; /* the token is a number that ctrun chose, in the order of PCI addresses */
    char number[16];
};

/* CT_ENOENT: GPUs are wanted, but there are too few; the text says what to do. */
CT_MUST_CHECK int ct_gpu_masks_decide(const struct ct_gpu_facts *facts,
                                      const struct ct_gpu_request *request,
                                      struct ct_gpu_masks *out, struct ct_err *err);

/* *out must not be copied or moved: its token may point into it. */
void ct_gpu_masks_of(const struct ct_gpu_masks *masks, int local_rank, struct ct_gpu_share *out);

/* Gives entry number `index` of a value of CUDA_VISIBLE_DEVICES, without blanks around it. False
 * when the list is shorter or the entry is empty. */
bool ct_gpu_entry(const char *visible, int index, const char **at, size_t *len);

/* Leading entries of `list` that name a device: CUDA ignores what follows one that does not, like
 * "-1" or a number that is not below `physical` (when that is known). */
int ct_gpu_entries(const char *list, int physical);

#endif
