/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the user where the live page of the job is. The page belongs to the store, so only the node
 * that hosts the job's store says it.
 */
#include "launcher/agent/agent_run_uv.h"
#include "launcher/setup/page_url.h"

/* Its name leads other machines here where the store listens on all addresses. */
static const char *page_host(const struct ct_agent_run *run)
{
    const char *master = run->store.address.master;
    return ct_addr_is_any(master) ? run->job->machine->host : master;
}

void ct_agent_page_say(struct ct_agent_run *run, bool at_end)
{
    const struct ct_job_spec *job = run->job;
    char line[CT_PAGE_LINE_MAX];
    if (run->store.server != NULL && ct_agent_report_speaks(job->resolved) &&
        ct_page_url_line(run->store.server, page_host(run), job->options, at_end, line)) {
        ct_agent_report_say(run->output, "%s", line);
    }
}

bool ct_agent_page_lingers(const struct ct_agent_run *run)
{
    return run->job->options->linger > 0 && run->store.server != NULL &&
           ct_server_has_page(run->store.server) && run->agent.signo == 0 &&
           run->report.story.worlds > 0;
}
