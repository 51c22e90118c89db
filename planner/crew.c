#include "planner/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/machine.h"

/* ---- copies ---------------------------------------------------------------------------------- */

/* With arrays of its own for what sbp_graph_set_micro_batch changes. */
static struct sbp_plan *copy_of(const struct sbp_plan *plan, struct sbp_arena *arena)
{
    const struct sbp_graph *graph = &plan->graph;
    struct sbp_plan *copy = SBP_NEW(arena, struct sbp_plan, 1);
    struct sbp_tensor *tensor = SBP_NEW(arena, struct sbp_tensor, graph->tensor_count);
    struct sbp_dim_class *dim_class = SBP_NEW(arena, struct sbp_dim_class, graph->class_count);
    if (copy == NULL || tensor == NULL || dim_class == NULL)
        return NULL;
    memcpy(tensor, graph->tensor, (size_t)graph->tensor_count * sizeof *tensor);
    memcpy(dim_class, graph->dim_class, (size_t)graph->class_count * sizeof *dim_class);
    *copy = *plan;
    sbp_arena_init(&copy->arena);
    copy->graph.tensor = tensor;
    copy->graph.dim_class = dim_class;
    return copy;
}

enum sbp_status sbp_crew_init(struct sbp_crew *crew, struct sbp_plan *plan, int threads,
                              struct sbp_arena *arena)
{
    struct sbp_machine machine;
    if (threads <= 0) {
        sbp_machine_find(SBP_CONTROL_GROUP, &machine);
        threads = machine.cores;
    }
    crew->count = threads < SBP_MOST_THREADS ? threads : SBP_MOST_THREADS;
    crew->plan = SBP_NEW(arena, struct sbp_plan *, crew->count);
    if (crew->plan == NULL)
        return SBP_E_MEMORY;
    crew->plan[0] = plan;
    for (int i = 1; i < crew->count; i++) {
        crew->plan[i] = copy_of(plan, arena);
        if (crew->plan[i] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

/* ---- turns ----------------------------------------------------------------------------------- */

struct work {
    void (*do_turn)(void *context, int turn, struct sbp_plan *plan);
    void *context;
    int turns;
    atomic_int next;
};

struct member {
    struct work *work;
    struct sbp_plan *plan;
    pthread_t thread;
};

static void *take_turns(void *argument)
{
    const struct member *const member = argument;
    struct work *const work = member->work;
    for (int turn = atomic_fetch_add(&work->next, 1); turn < work->turns;
         turn = atomic_fetch_add(&work->next, 1))
        work->do_turn(work->context, turn, member->plan);
    return NULL;
}

void sbp_crew_do(const struct sbp_crew *crew,
                 void (*do_turn)(void *context, int turn, struct sbp_plan *plan), void *context,
                 int turns)
{
    struct work work = {.do_turn = do_turn, .context = context, .turns = turns};
    struct member member[SBP_MOST_THREADS];
    int started = 1; /* the caller */
    atomic_init(&work.next, 0);
    member[0] = (struct member){.work = &work, .plan = crew->plan[0]};
    for (; started < crew->count && started < turns; started++) {
        member[started] = (struct member){.work = &work, .plan = crew->plan[started]};
        if (pthread_create(&member[started].thread, NULL, take_turns, &member[started]) != 0)
            break;
    }
    (void)take_turns(&member[0]);
    for (int i = 1; i < started; i++)
        (void)pthread_join(member[i].thread, NULL); /* a thread of ours, joined once */
}
