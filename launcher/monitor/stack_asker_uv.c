/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: look once which tools are installed, list the living workers, start a task.
 *
 * Failure modes: without any tool only a worker server can answer; the text says what to install.
 *
 * Who frees: the task frees itself; the paths live as long as the loop, because a task may use them
 * until it ends.
 */
#include "launcher/monitor/stack_asker_uv.h"

#include "common/alloc.h"

#include <string.h>
#include <unistd.h>

/* Finds a tool beside the program of the job, as in the bin folder of a virtual environment that is
 * not activated, or in PATH. The program is the one that the user has named: a worker itself could
 * name any file, and ctrun may have more rights than the worker. */
static char *find_tool(const struct ct_job_spec *job, const char *name)
{
    const char *program = job->command->path, *slash = strrchr(program, '/');
    char *path =
        slash != NULL ? ct_asprintf("%.*s/%s", (int)(slash - program), program, name) : NULL;
    if (path != NULL && access(path, X_OK) == 0) {
        return path;
    }
    ct_free(path);
    path = NULL;
    return ct_command_find(name, job->env, &path, NULL) == 0 ? path : NULL;
}

static void look_for_tools(struct ct_stack_asker *asker)
{
    for (int i = CT_PROBE_PY_SPY; i < CT_PROBE_SOURCES && !asker->looked; i++) {
        asker->tools[i] = find_tool(asker->job, ct_probe_source_name((enum ct_probe_source)i));
    }
    asker->looked = true;
}

static bool is_asked(const struct ct_worker *worker)
{
    return worker->proc != NULL && ct_proc_alive(worker->proc) && !worker->kept;
}

int ct_stack_asker_ask(struct ct_stack_asker *asker, const struct ct_stack_question *question,
                       ct_probe_done_fn done, void *data, struct ct_probe_task **out,
                       struct ct_err *err)
{
    int count = asker->job->resolved->workers;
    int first = question->only >= 0 ? question->only : question->suspect;
    struct ct_probe_target *targets = ct_calloc((size_t)count, sizeof(*targets));
    if (targets == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory");
    }
    for (int i = 0; i < count; i++) {
        const struct ct_worker *worker = &asker->workers[i];
        if (is_asked(worker) && (question->only < 0 || question->only == i)) {
            targets[i].pid = ct_proc_pid(worker->proc);
            memcpy(targets[i].socket, worker->server_socket, sizeof(targets[i].socket));
        }
    }
    look_for_tools(asker);
    const struct ct_probe_task_options options = {
        .tools = asker->tools,
        .targets = targets,
        .count = count,
        .first = first >= 0 ? first : 0,
        .store = {.host = asker->worker_env->master_addr,
                  .port = asker->worker_env->master_port,
                  .first_rank = asker->worker_env->first_rank},
        .budget_ms = question->budget_ms,
        .done = done,
        .data = data,
    };
    int rc = ct_probe_task_start(asker->loop, &options, out, err);
    ct_free(targets);
    return rc;
}

struct ct_explain ct_stack_asker_explain(const struct ct_stack_asker *asker,
                                         const struct ct_probe *probe, int suspect)
{
    return (struct ct_explain){
        .probe = probe,
        .first_rank = asker->worker_env->first_rank,
        .whole_job = asker->worker_env->world_size == asker->job->resolved->workers,
        .suspect = suspect,
    };
}

void ct_stack_asker_fini(struct ct_stack_asker *asker)
{
    for (int i = 0; i < CT_PROBE_SOURCES; i++) {
        ct_free(asker->tools[i]);
        asker->tools[i] = NULL;
    }
}
