/* SPDX-License-Identifier: Apache-2.0
 *
 * ncclCommSplit() of the fake GPU. The new communicator exists when the call on the old one is
 * done, not before. Then all of its ranks have come.
 */
#include "tests/lib/fake_gpu/fake_nccl.h"

static bool all_voted(const struct ncclComm *comm, const struct fake_ballot *ballots)
{
    for (int r = 0; r < comm->size; r++) {
        if (atomic_load(&ballots[r].number) != comm->splits) {
            return false;
        }
    }
    return true;
}

static struct ncclComm *make_child(const struct ncclComm *comm, const struct fake_ballot *ballots)
{
    int rank = 0, size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (ballots[r].color == comm->color) {
            int mine = ballots[comm->rank].key;
            size++;
            rank += ballots[r].key < mine || (ballots[r].key == mine && r < comm->rank);
        }
    }
    struct ncclComm *child = fake_comm_new(rank, size);
    child->rendezvous = fake_rendezvous_enter_part(comm, rank, size);
    fake_rule(child->rendezvous != NULL, "no file for a rendezvous");
    return child;
}

bool fake_split_is_done(struct ncclComm *comm)
{
    if (comm->rendezvous == NULL) { /* imaginary peers pass the same arguments as this rank */
        comm->child = comm->color < 0 ? NULL : fake_comm_new(comm->rank, comm->size);
    } else {
        const struct fake_ballot *ballots = comm->rendezvous->ballot[comm->splits % 2];
        if (!all_voted(comm, ballots)) {
            return false;
        }
        if (comm->color >= 0 && comm->child == NULL) {
            comm->child = make_child(comm, ballots);
        }
        if (comm->child != NULL && !fake_rendezvous_is_full(comm->child->rendezvous)) {
            return false;
        }
    }
    *comm->split = comm->child;
    comm->split = NULL;
    comm->child = NULL;
    return true;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    FAKE_ALONE;
    fake_usable(comm);
    fake_rule(config != NULL && config->blocking == 0 && config->splitShare == 0,
              "a split into a blocking communicator, or one that shares what aborts it");
    fake_rule(color >= 0 || color == NCCL_SPLIT_NOCOLOR, "a color that NCCL does not know");
    fake_rule(comm->pending == 0, "a split while operations are outstanding");
    fake_rule(fake_may_block("a communicator split in a capture"), "not in a capture");
    *newcomm = NULL;
    if (fake.init_error != 0) {
        return (ncclResult_t)fake.init_error;
    }
    comm->split = newcomm;
    comm->color = color;
    comm->splits++;
    if (comm->rendezvous != NULL) {
        struct fake_ballot *mine = &comm->rendezvous->ballot[comm->splits % 2][comm->rank];
        mine->color = color;
        mine->key = key;
        atomic_store(&mine->number, comm->splits);
    }
    (void)fake_begin_call(comm, fake.init_turns);
    comm->busy = true; /* ncclCommGetAsyncError() completes the split */
    /* As NCCL 2.28 does it, although the header says that such a call gives ncclInProgress. */
    return ncclSuccess;
}
