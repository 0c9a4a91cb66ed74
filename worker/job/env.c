/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads RANK, WORLD_SIZE and the other variables strictly. A missing variable is CT_ENOENT. For one
 * that is no number or is out of range, the message gives name and value. Without RANK and
 * WORLD_SIZE the process is a job of one rank.
 */
#include "worker/job/env.h"

#include "common/env_names.h"
#include "common/num.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Larger than any job, and small enough that rank arithmetic fits in an int. */
#define RANKS_MAX (1 << 20)

static const char *find(const struct env_source *source, const char *name)
{
    size_t len = strlen(name);
    const char *end = source->text + source->bytes;
    for (const char *at = source->text; at < end; at += strlen(at) + 1) {
        if (strncmp(at, name, len) == 0 && at[len] == '=') {
            return at + len + 1;
        }
    }
    return NULL;
}

/* An empty variable counts as unset, as in PyTorch's env://. */
static const char *lookup(const struct env_source *source, const char *name)
{
    const char *text = source != NULL ? find(source, name) : getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Does not change *out if the variable is unset. */
static int read_int(const struct env_source *from, const char *name, int min, int max, int *out,
                    struct ct_err *err)
{
    const char *text = lookup(from, name);
    if (text == NULL) {
        return 0;
    }
    int rc = ct_parse_int(text, min, max, out);
    if (rc == CT_ELIMIT) {
        return ct_err_set(err, rc, "%s=%.40s is not within %d and %d", name, text, min, max);
    }
    if (rc != 0) {
        return ct_err_set(err, rc, "%s=\"%.40s\" is not an integer", name, text);
    }
    return 0;
}

static int need_int(const struct env_source *from, const char *name, int min, int max, int *out,
                    struct ct_err *err)
{
    if (lookup(from, name) == NULL) {
        return ct_err_set(err, CT_ENOENT, "environment variable %s is not set", name);
    }
    return read_int(from, name, min, max, out, err);
}

/* Copies a text. It becomes part of keys and messages, so control characters are refused. */
static int read_text(const struct env_source *from, const char *name, char *out, size_t cap,
                     struct ct_err *err)
{
    const char *text = lookup(from, name);
    if (text == NULL) {
        return 0;
    }
    size_t len = strlen(text);
    if (len >= cap) {
        return ct_err_set(err, CT_ELIMIT, "%s is %zu bytes long, more than %zu", name, len,
                          cap - 1);
    }
    for (size_t i = 0; i < len; i++) {
        if (iscntrl((unsigned char)text[i])) {
            return ct_err_set(err, CT_EFORMAT, "%s contains a control character", name);
        }
    }
    memcpy(out, text, len + 1);
    return 0;
}

static int read_ranks(const struct env_source *from, struct ctw_env *env, struct ct_err *err)
{
    int rc = need_int(from, "WORLD_SIZE", 1, RANKS_MAX, &env->world_size, err);
    if (rc != 0) {
        return rc;
    }
    rc = need_int(from, "RANK", 0, env->world_size - 1, &env->rank, err);
    if (rc != 0) {
        return rc;
    }
    env->local_world_size = env->world_size;
    rc = read_int(from, "LOCAL_WORLD_SIZE", 1, env->world_size, &env->local_world_size, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_int(from, "LOCAL_RANK", 0, env->local_world_size - 1, &env->local_rank, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_int(from, "GROUP_WORLD_SIZE", 1, env->world_size, &env->node_count, err);
    if (rc != 0) {
        return rc;
    }
    return read_int(from, "GROUP_RANK", 0, env->node_count - 1, &env->node_rank, err);
}

static int read_master(const struct env_source *from, struct ctw_env *env, struct ct_err *err)
{
    int rc = read_text(from, "MASTER_ADDR", env->master_addr, sizeof(env->master_addr), err);
    if (rc != 0) {
        return rc;
    }
    if (env->master_addr[0] == '\0') {
        return ct_err_set(err, CT_ENOENT, "environment variable MASTER_ADDR is not set");
    }
    int port = 0;
    rc = need_int(from, "MASTER_PORT", 1, UINT16_MAX, &port, err);
    if (rc != 0) {
        return rc;
    }
    env->master_port = (uint16_t)port;
    /* PyTorch compares with exactly this string, too. */
    const char *flag = lookup(from, "TORCHELASTIC_USE_AGENT_STORE");
    env->store_is_external = flag != NULL && strcmp(flag, "True") == 0;
    return 0;
}

int env_read_from(const struct env_source *from, struct ctw_env *out, struct ct_err *err)
{
    struct ctw_env env = {.world_size = 1, .local_world_size = 1, .node_count = 1};
    env.launched = lookup(from, "RANK") != NULL || lookup(from, "WORLD_SIZE") != NULL;
    int rc = 0;
    if (env.launched) {
        rc = read_ranks(from, &env, err);
        if (rc == 0) {
            rc = read_master(from, &env, err);
        }
    }
    if (rc == 0) {
        const char *generation = lookup(from, CT_GENERATION_ENV) != NULL
                                     ? CT_GENERATION_ENV
                                     : "TORCHELASTIC_RESTART_COUNT";
        rc = read_int(from, generation, 0, INT_MAX, &env.generation, err);
    }
    if (rc == 0) {
        memcpy(env.run_id, "none", sizeof("none"));
        rc = read_text(from, "TORCHELASTIC_RUN_ID", env.run_id, sizeof(env.run_id), err);
    }
    if (rc == 0) {
        rc =
            read_text(from, "TORCHELASTIC_ERROR_FILE", env.error_file, sizeof(env.error_file), err);
    }
    if (rc == 0) {
        rc = read_text(from, CT_SNAPSHOT_ENV, env.snapshot, sizeof(env.snapshot), err);
    }
    if (rc == 0) {
        env.device_index = env.local_rank;
        env.device_set = lookup(from, CT_DEVICE_INDEX_ENV) != NULL;
        env.device_own = env.device_set && lookup(from, CT_GPU_SHARE_ENV) == NULL;
        rc = read_int(from, CT_DEVICE_INDEX_ENV, 0, RANKS_MAX, &env.device_index, err);
    }
    if (rc == 0) {
        *out = env;
    }
    return rc;
}

int ctw_env_read(struct ctw_env *out, struct ct_err *err)
{
    if (out == NULL) {
        return ct_err_set(err, CT_EINVAL, "no struct ctw_env to fill");
    }
    return env_read_from(NULL, out, err);
}
