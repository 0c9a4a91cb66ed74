/* SPDX-License-Identifier: Apache-2.0
 *
 * Records are compared and searched. There are few voters, so every search goes through the lists.
 */
#include "rendezvous/election/job_record.h"

#include <stddef.h>

void ct_job_record_init(struct ct_job_record *record)
{
    *record = (struct ct_job_record){.formed.generation = -1, .planned.generation = -1};
}

int ct_job_record_compare(const struct ct_job_record *a, const struct ct_job_record *b)
{
    if (a->term != b->term) {
        return a->term < b->term ? -1 : 1;
    }
    return (a->version > b->version) - (a->version < b->version);
}

const struct ct_world_voters *ct_job_record_newest(const struct ct_job_record *record)
{
    return record->planned.generation > record->formed.generation ? &record->planned
                                                                  : &record->formed;
}

int ct_job_record_generation(const struct ct_job_record *record)
{
    return ct_job_record_newest(record)->generation;
}

const struct ct_voter *ct_job_record_find(const struct ct_job_record *record, uint64_t id)
{
    const struct ct_voter *found = ct_world_voters_find(&record->planned, id);
    return found != NULL ? found : ct_world_voters_find(&record->formed, id);
}

int ct_job_record_voters(const struct ct_job_record *record, uint64_t ids[CT_VOTERS_BOTH])
{
    int count = 0;
    for (int i = 0; i < record->formed.count; i++) {
        ids[count++] = record->formed.list[i].id;
    }
    for (int i = 0; i < record->planned.count; i++) {
        if (ct_world_voters_find(&record->formed, record->planned.list[i].id) == NULL) {
            ids[count++] = record->planned.list[i].id;
        }
    }
    return count;
}
