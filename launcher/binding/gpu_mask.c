/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the rules come from: a CUDA process sees one MIG device at most, whatever the list says
 * (NVIDIA's MIG guide); HAMi-core reads the list with atoi() and miscounts memory behind a mask
 * (HAMi-core issues 225, 319); Slurm's MPS always says 0 (gres.conf(5)); a GPU that its cgroup
 * hides cannot be reached by peers (NCCL issue 1066).
 */
#include "launcher/binding/gpu_mask.h"

#include "common/num.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Longer than every number that an int can hold. */
#define NUMBER_MAX 16
/* More devices than any machine has; counting takes quadratic time. */
#define ENTRIES_MAX 4096

bool ct_gpu_entry(const char *visible, int index, const char **at, size_t *len)
{
    const char *p = visible;
    for (; index > 0; index--) {
        p = strchr(p, ',');
        if (p == NULL) {
            return false;
        }
        p++;
    }
    size_t end = strcspn(p, ",");
    size_t skip = strspn(p, " \t");
    while (end > skip && (p[end - 1] == ' ' || p[end - 1] == '\t')) {
        end--;
    }
    if (end <= skip) {
        return false;
    }
    *at = p + skip;
    *len = end - skip;
    return true;
}

static bool is_number(const char *token, size_t len, int *out)
{
    char text[NUMBER_MAX];
    if (len >= sizeof(text)) {
        return false;
    }
    memcpy(text, token, len);
    text[len] = '\0';
    return ct_parse_int(text, INT_MIN, INT_MAX, out) == 0;
}

static bool is_mig(const char *token, size_t len)
{
    return len > 4 && strncmp(token, "MIG-", 4) == 0;
}

/* "NoDevFiles" is what Slurm writes for a step without GPUs. */
static bool names_device(const char *token, size_t len, int physical)
{
    static const char none[] = "NoDevFiles";
    int number;
    if (is_number(token, len, &number)) {
        return number >= 0 && (physical == 0 || number < physical);
    }
    return len != sizeof(none) - 1 || strncmp(token, none, len) != 0;
}

int ct_gpu_entries(const char *list, int physical)
{
    const char *token;
    size_t len;
    int count = 0;
    while (count < ENTRIES_MAX && ct_gpu_entry(list, count, &token, &len) &&
           names_device(token, len, physical)) {
        count++;
    }
    return count;
}

static bool has_mig(const char *list, int entries)
{
    const char *token;
    size_t len;
    for (int i = 0; i < entries; i++) {
        if (ct_gpu_entry(list, i, &token, &len) && is_mig(token, len)) {
            return true;
        }
    }
    return false;
}

static void note(struct ct_gpu_masks *masks, enum ct_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void note(struct ct_gpu_masks *masks, enum ct_log_level level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(masks->note, sizeof(masks->note), fmt, ap);
    va_end(ap);
    masks->note_level = level;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

static const char *asking(const struct ct_gpu_request *request)
{
    return request->virtual_local_rank         ? "--virtual-local-rank"
           : request->bind == CT_GPU_BIND_MASK ? "--gpu-bind mask"
                                               : "--nproc-per-node gpu";
}

static int too_few(const struct ct_gpu_facts *facts, const struct ct_gpu_request *request,
                   int devices, struct ct_err *err)
{
    if (devices == 0) {
        return ct_err_set(err, CT_ENOENT,
                          "%s: no GPU is visible here (/dev/nvidia*, CUDA_VISIBLE_DEVICES%s%.64s)",
                          asking(request), facts->visible != NULL ? "=" : "",
                          facts->visible != NULL ? facts->visible : "");
    }
    return ct_err_set(err, CT_ENOENT,
                      "%s: %d worker%s, but %d GPU%s visible here%s%.64s; start %d, or let workers "
                      "share with --share-gpu",
                      asking(request), request->ranks_here, plural(request->ranks_here), devices,
                      devices == 1 ? " is" : "s are",
                      facts->visible != NULL ? ": CUDA_VISIBLE_DEVICES=" : "",
                      facts->visible != NULL ? facts->visible : "", devices);
}

/* A GPU is cut into MIG devices, but no list gives their UUIDs. */
static int unnamed_mig(const struct ct_gpu_request *request, struct ct_gpu_masks *masks,
                       struct ct_err *err)
{
    static const char hint[] = "set CUDA_VISIBLE_DEVICES to the UUIDs that nvidia-smi -L shows";
    if (masks->masked) {
        return ct_err_set(err, CT_ENOENT,
                          "%s: a GPU here is cut into MIG devices, which have no numbers; %s",
                          asking(request), hint);
    }
    if (request->ranks_here > 1) {
        note(masks, CT_LOG_WARNING,
             "a GPU here is cut into MIG devices, of which CUDA shows each worker the same one; "
             "%s",
             hint);
    }
    return 0;
}

/* How the workers are spread over the devices that are there. */
static int spread(const struct ct_gpu_facts *facts, const struct ct_gpu_request *request,
                  bool asked, struct ct_gpu_masks *masks, struct ct_err *err)
{
    if (masks->devices == 1 && facts->slurm_mps) {
        masks->masked = false;
        masks->alike = true;
        masks->shared = request->ranks_here > 1;
    } else if (masks->devices == 1 && request->ranks_here > request->workers) {
        masks->masked = false;
        masks->alike = true;
        note(masks, CT_LOG_INFO,
             "this rank sees one GPU of its own: NCCL may not reach the others directly (slower "
             "than with all of them visible)");
    } else if (request->ranks_here > masks->devices) {
        masks->shared = request->share;
        if (!request->share && (asked || request->wants_gpus)) {
            return too_few(facts, request, masks->devices, err);
        }
        if (!request->share) {
            note(masks, CT_LOG_INFO, "%d worker%s and %d GPU%s: none is assigned (see --share-gpu)",
                 request->ranks_here, plural(request->ranks_here), masks->devices,
                 plural(masks->devices));
            masks->masked = false;
            masks->devices = 0;
        }
    }
    return 0;
}

int ct_gpu_masks_decide(const struct ct_gpu_facts *facts, const struct ct_gpu_request *request,
                        struct ct_gpu_masks *out, struct ct_err *err)
{
    struct ct_gpu_masks masks = {
        .list = facts->visible != NULL ? facts->visible : facts->mig,
        .ranks_here = request->ranks_here,
        .numbers = facts->hami,
    };
    bool asked = request->bind == CT_GPU_BIND_MASK || request->virtual_local_rank;
    masks.devices =
        masks.list != NULL ? ct_gpu_entries(masks.list, facts->physical) : facts->physical;
    bool mig = masks.list != NULL && has_mig(masks.list, masks.devices);
    masks.masked = asked || (mig && request->bind != CT_GPU_BIND_NONE && !facts->hami);

    if (masks.devices == 0 && masks.list == NULL && request->virtual_local_rank) {
        /* torchrun does not check that the devices exist. */
        masks.devices = request->ranks_here;
    }
    if (masks.devices == 0) {
        if (asked) {
            return too_few(facts, request, 0, err);
        }
        *out = (struct ct_gpu_masks){0};
        return 0;
    }
    int rc = spread(facts, request, asked, &masks, err);
    if (rc != 0) {
        return rc;
    }
    if (facts->mig_on && masks.list == NULL) {
        rc = unnamed_mig(request, &masks, err);
        if (rc != 0) {
            return rc;
        }
    } else if (mig && !masks.masked && masks.devices > 1 && request->ranks_here > 1) {
        note(&masks, CT_LOG_WARNING,
             "CUDA shows each worker only the first of the %d MIG devices; --gpu-bind mask gives "
             "each its own",
             masks.devices);
    }
    if (facts->hami && masks.masked) {
        note(&masks, CT_LOG_WARNING,
             "HAMi-core is in this container: behind a mask its memory limits do not hold for "
             "devices other than 0; without %s all workers see all devices",
             asking(request));
    }
    *out = masks;
    return 0;
}

/* ---- one worker ------------------------------------------------------------------------------ */

static void count_token(struct ct_gpu_share *share, int device)
{
    int len = snprintf(share->number, sizeof(share->number), "%d", device);
    share->token = share->number;
    share->token_len = (size_t)len;
    share->counted = true;
}

void ct_gpu_masks_of(const struct ct_gpu_masks *masks, int local_rank, struct ct_gpu_share *out)
{
    int number;
    *out = (struct ct_gpu_share){.assigned = masks->devices > 0, .ranks = 1};
    if (!out->assigned) {
        return;
    }
    int device = masks->alike ? 0 : local_rank % masks->devices;
    out->index = masks->masked ? 0 : device;
    if (masks->shared) {
        out->ranks = (masks->ranks_here - device + masks->devices - 1) / masks->devices;
    }
    if (!masks->masked) {
        return;
    }
    if (masks->list == NULL || !ct_gpu_entry(masks->list, device, &out->token, &out->token_len) ||
        (masks->numbers && !is_number(out->token, out->token_len, &number))) {
        count_token(out, device);
    }
}
