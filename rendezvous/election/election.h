/* SPDX-License-Identifier: Apache-2.0
 *
 * One agent's part in the choice of a new host. Pure: events and the time go in, what to do comes
 * out; no clock, no socket.
 *
 *             host is lost                   more than half of the last world
 *     FOLLOWING ----------> LOOKING --------------------------------------> HOSTING
 *         ^                  |   ^ |                                           |
 *         |   link is up     |   +-+ asks again, in a later term               | deposed
 *         +------------------+   <---------------------------------------------+
 *                            | nobody is found in time
 *                            +------------> ENDED
 *
 * An agent has one vote in each term, and none while it hears its host, so that an agent that is
 * cut off by itself cannot depose a host that others hear. It votes only for a candidate whose
 * record is not older than its own; an older candidate gets the newer record and asks again.
 *
 * Silence and death. An agent counts its host as lost when a lease that the host has given ends, or
 * when the connection ends. Then it has told its workers to stop. Voters say how long that is ago.
 * `fence_ns` is when everybody else has stopped, too: until then no world may begin without an
 * agent that is neither there nor known to be dead. The death of a process is known when its
 * machine says that nobody listens at its port. If an agent knows that before the lease has ended,
 * the host has decided nothing without it, and half of a world that the host belonged to is a
 * quorum. The deaths of other voters are noted as well. One of them may have been elected and have
 * died before anybody followed it; the next host need not wait for its workers.
 *
 * Arbiter. A job may have an arbiter, which votes as well (world_voters.h). It is a value outside
 * the job's machines, so it does not answer by itself: each agent makes the answer to its own
 * question from what is kept there (arbiter.h). With an arbiter no host is the first one. Who wants
 * to take part in a job of which it knows nothing asks the arbiter, and is elected if nobody hosts.
 * If all machines of a job were killed, the store drops the value after a while. Then the agents
 * that wait for that job begin it anew.
 *
 * Terms from others. Nobody can stand after the last term, so an agent that names a far too high
 * one, by mistake or with intent, would end all elections. Therefore an agent takes notice of terms
 * only while it looks for a host, and only of those within CT_TERM_REACH of the highest that it
 * knew when it began to look. It gives no vote, follows no host and takes no record of a farther
 * term. Who seeks a job and has had no host yet learns from the arbiter how far terms have come.
 */
#ifndef CT_RENDEZVOUS_ELECTION_ELECTION_H
#define CT_RENDEZVOUS_ELECTION_ELECTION_H

#include "common/err.h"
#include "rendezvous/election/job_record.h"

/* Votes that are remembered one by one. An older one counts as kept for ever. */
#define CT_PROMISES 16

/* How far the number of a term may be above the highest known one: a sixteenth of all numbers, so
 * that they last for sixteen hosts even if somebody uses them up. Candidates need far fewer: 31
 * voters that find no host use about a thousand in five leases of 3 s, and fewer than sixteen
 * thousand in a day, since their pauses grow. */
#define CT_TERM_REACH ((CT_TERM_NUMBER_MAX + 1) / 16)

/* How long after the end of its lease an agent's workers may still run: clocks of two machines may
 * differ in speed, and timers may be late. The agent has its workers stopped by then, and the fence
 * of the others counts on that. */
int64_t ct_election_late_ns(int64_t lease_ms);

/* May it be a term that candidates have reached one by one, when `known` was the highest one? */
bool ct_election_in_reach(uint64_t known, uint64_t term);

enum ct_election_state {
    CT_ELECTION_FOLLOWING,
    CT_ELECTION_LOOKING,
    CT_ELECTION_HOSTING,
    CT_ELECTION_ENDED,
};

/* To all voters on record. */
struct ct_vote_ask {
    uint64_t id;                          /* who asks */
    uint64_t term;                        /* 0 = it wants no vote, and only asks who is the host */
    uint64_t record_term, record_version; /* of its record */
    bool followed; /* it has followed a host of this job; only the arbiter needs to know */
};

struct ct_vote_answer {
    uint64_t id;         /* who answers */
    uint64_t seen;       /* the highest term that it knows of */
    uint64_t candidacy;  /* the term in which it is a candidate itself; 0 = in none */
    uint64_t asked_term; /* of the question */
    bool granted;
    int64_t alone_ms;                   /* granted: since when it has had no host */
    const struct ct_job_record *record; /* it is newer than that of who asks; NULL = it is not */
    const struct ct_voter *host;        /* whom it follows, or itself; NULL = nobody */
    uint64_t host_term;
    int64_t free_ms; /* of the arbiter: how long it will vote for nobody; 0 = it may vote */
};

/* What to do, in the order of the fields. */
struct ct_election_todo {
    bool ask; /* send `question` to all voters on record, and to the arbiter */
    struct ct_vote_ask question;
    bool host; /* elected: host the membership in ct_election.host_term, from ct_election.record */
    struct ct_voter lost; /* then: the host that was lost; id 0 = unknown */
    bool lost_is_dead;    /* and its process is known to be dead, ... */
    bool lost_in_time;    /* ... since before this agent's lease had ended */
    bool join;            /* connect to `at`, who hosts in `at_term` */
    struct ct_voter at;
    uint64_t at_term;
    bool stop_hosting; /* another one hosts in a later term */
    bool give_up;      /* end with `exit_code` */
    int exit_code;
};

/* Read-only for others. */
struct ct_election {
    struct ct_voter self;
    bool arbiter; /* the job has one */
    enum ct_election_state state;
    struct ct_job_record record;
    uint64_t seen;      /* the highest term that it knows of; 0 = it has had no host yet */
    uint64_t known;     /* the same, as of when it last followed or lost a host */
    uint64_t far_id;    /* the last one that named a term out of reach; 0 = nobody has */
    uint64_t promised;  /* the highest term in which it has voted for another or followed a host */
    uint64_t floor;     /* it follows no host of an earlier term, whatever becomes of its votes */
    struct ct_promise { /* votes above `floor`, each until it is known to be void */
        uint64_t term, to;
    } promises[CT_PROMISES];
    int num_promises;
    struct ct_voter host; /* FOLLOWING: whom; LOOKING: whom it followed last; id 0 = unknown */
    uint64_t host_term;   /* of that host */
    int64_t lease_ms;     /* the longest lease that a host gives */
    int64_t give_up_ms;   /* how long it looks for a host */
    bool current;         /* that host has sent its record: what it decided before is known */
    bool met;             /* a voter on record has answered */
    int64_t alone_ns;     /* LOOKING: since when */
    int64_t lease_ns;     /* when the last lease ended or will end */
    bool host_is_dead;    /* that host, and it was known before the lease ended */
    int64_t died_ns;      /* when the death of the last host was known; INT64_MIN = it is not */
    /* HOSTING, or FOLLOWING a host that has given no lease yet, while no other world is certain:
     * the host before, if that one is dead and this was known before its lease ended; id 0 = none.
     */
    struct ct_voter former;
    uint64_t former_term;
    int64_t former_died_ns;
    uint64_t dead[CT_VOTERS_BOTH]; /* LOOKING, HOSTING: who was found dead since it began to look */
    int num_dead;
    int64_t next_ns, give_up_ns;
    int64_t stand_ns; /* LOOKING: until then it asks for no votes */
    int64_t fence_ns; /* HOSTING: see above */
    int64_t doubt_ns; /* HOSTING: until when it asks whether another one was elected later, ... */
    int64_t doubt_pause_ns; /* ... and how long it waits before it asks again */
    uint64_t candidacy;     /* the term in which it is a candidate; 0 = it is none */
    uint64_t granted[CT_BALLOTS_MAX];
    int num_granted;
    int64_t asked_ns;   /* when the arbiter's oldest question without an answer was asked;
                           INT64_MAX = there is none */
    uint64_t asked;     /* the term of the newest one */
    int64_t arbiter_ns; /* how long its last answer took */
    uint64_t random;
};

/* Why a candidate that loses may still follow a host of an earlier term: it has voted for nobody
 * but itself, and a candidacy that is given up is never taken up again. Whoever has voted for it is
 * released by its next answer, which names another candidacy or none.
 *
 * `self` is copied; its id also seeds the pauses between two candidacies. The agent begins LOOKING
 * for nobody: it does nothing before it has followed a host once, or seeks one. */
void ct_election_init(struct ct_election *election, const struct ct_voter *self, bool arbiter,
                      int64_t lease_ms, int64_t give_up_ms);

/* This agent is the first host, which nobody elects. */
void ct_election_begin_hosting(struct ct_election *election);

/* In a job with an arbiter: begins to look for the host of the job, for `give_up_ms` at most, and
 * stands for election if the job has had no world. */
void ct_election_seek(struct ct_election *election, int64_t give_up_ms, int64_t now_ns);

/* Has it learned from the arbiter of a job that has had a world, but has never belonged to it, and
 * has no voter of it answered? */
bool ct_election_knows_nobody_of_it(const struct ct_election *election);

/* A link to a host is up. Returns false if its term is over, out of reach, or that of another host;
 * then the link is to be closed. */
bool ct_election_followed(struct ct_election *election, const struct ct_voter *host, uint64_t term,
                          int64_t now_ns);

/* The host has answered a beat that was sent at `sent_ns`: its lease is `lease_ms` from then. */
void ct_election_leased(struct ct_election *election, int64_t sent_ns, int64_t lease_ms);

/* The host that it follows has sent this record. Returns true if it is to be pledged. */
bool ct_election_recorded(struct ct_election *election, const struct ct_job_record *record);

/* The link to the host is lost: its lease or the connection has ended. The workers have been told
 * to stop. */
void ct_election_lost(struct ct_election *election, int64_t now_ns);

/* The process with this id is dead: nobody listens any more at the port at which it was met. That
 * is forgotten if this id is heard again. */
void ct_election_dead(struct ct_election *election, uint64_t id, int64_t now_ns);

/* Was this agent, the last host or one on record, found dead since this one began to look? */
bool ct_election_is_dead(const struct ct_election *election, uint64_t id);

/* As host: the arbiter belongs to a later host or candidate. Asks for a while who was elected. */
void ct_election_doubted(struct ct_election *election, int64_t now_ns);

/* As host: more than half of the world is lost. Gives up hosting and looks for another host. */
void ct_election_deposed(struct ct_election *election, int64_t now_ns);

/* Somebody asks. Fills in *answer, which borrows from the election. */
void ct_election_asked(struct ct_election *election, const struct ct_vote_ask *ask, int64_t now_ns,
                       struct ct_vote_answer *answer);

/* Would it matter to this agent that another one hosts the same job? It does if this one hosts a
 * job that has had no world: then it was the first host in a former life. */
bool ct_election_may_be_told(const struct ct_election *election, const struct ct_voter *host);

/* That other one was reached, and hosts in a later term. This one gives up hosting and joins. */
void ct_election_told(struct ct_election *election, const struct ct_voter *host, uint64_t term,
                      int64_t now_ns, struct ct_election_todo *todo);

void ct_election_answered(struct ct_election *election, const struct ct_vote_answer *answer,
                          int64_t now_ns, struct ct_election_todo *todo);

/* To be called at ct_election_next(); INT64_MAX = never. */
void ct_election_tick(struct ct_election *election, int64_t now_ns, struct ct_election_todo *todo);
int64_t ct_election_next(const struct ct_election *election);

#endif
