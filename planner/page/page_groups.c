/* Who talks to whom: communication by the level of the network that it crosses, and the ranks
 * coloured by the groups within which they communicate. */
#include <math.h>
#include <string.h>

#include "planner/page/page_priv.h"
#include "planner/report/operands.h"

enum { MOST_GROUPS = 256, MOST_GRIDS = 6, MOST_DRAWN = 2048, CELL = 20, LABELLED = 128 };

/* Collectives over one set of axes, of all layers; or messages between stages. */
struct kind {
    sbp_axes axes;
    int stages, level;            /* level: the outermost that it crosses */
    int tensor;                   /* that a group over stages sums: some stages hold it; -1 */
    double seconds, bytes;        /* of a device in a step, the mean of stages */
    unsigned causes, collectives; /* a bit each */
    const struct sbp_instr *instr;
};

struct traffic {
    const struct sbp_page_plan *plan;
    struct kind kind[MOST_GROUPS];
    int count;
};

/* --- adding up --- */

static int level_of(const struct sbp_plan *plan, const struct sbp_instr *instr)
{
    const struct sbp_mesh *mesh = &plan->cut.mesh;
    if (instr->stages > 1 || instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_PASS)
        return plan->cut.stage_level < 0 ? 0 : plan->cut.stage_level;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (instr->box.axes >> axis & 1)
            return mesh->axis[axis].level;
    return mesh->level_count - 1;
}

static struct kind *kind_of(struct traffic *traffic, const struct sbp_instr *instr)
{
    const bool message = instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_PASS;
    const sbp_axes axes = message ? 0 : instr->box.axes;
    const int stages = message ? 0 : instr->stages;
    const int tensor = stages > 1 ? instr->tensor : -1;
    for (int i = 0; i < traffic->count; i++)
        if (traffic->kind[i].axes == axes && traffic->kind[i].stages == stages &&
            traffic->kind[i].tensor == tensor)
            return &traffic->kind[i];
    const int at = traffic->count < MOST_GROUPS ? traffic->count++ : MOST_GROUPS - 1;
    if (traffic->kind[at].instr == NULL)
        traffic->kind[at] = (struct kind){.axes = axes,
                                          .stages = stages,
                                          .tensor = tensor,
                                          .level = level_of(traffic->plan->plan, instr),
                                          .instr = instr};
    return &traffic->kind[at];
}

static void add_instr(struct traffic *traffic, int piece, const struct sbp_instr *instr)
{
    const struct sbp_step *step = &traffic->plan->report->step;
    const struct sbp_program *program = sbp_step_program(step, piece);
    const double times = sbp_step_times(step, piece, instr) / step->stages;
    if (!(instr->communication_s > 0))
        return;
    struct kind *kind = kind_of(traffic, instr);
    kind->seconds += times * instr->communication_s;
    kind->bytes += times * sbp_price_traffic_bytes(program, &step->cluster, instr);
    kind->causes |= 1U << instr->cause;
    if (sbp_program_is_call(instr) && instr->kind != SBP_INSTR_SEND)
        kind->collectives |= 1U << instr->box.kind;
}

static void add_up(struct traffic *traffic)
{
    const struct sbp_step *step = &traffic->plan->report->step;
    for (int piece = 0; piece < step->pieces; piece++) {
        const struct sbp_program *program = sbp_step_program(step, piece);
        for (int i = 0; i < program->instr_count; i++)
            add_instr(traffic, piece, &program->instr[i]);
    }
    for (int i = 1; i < traffic->count; i++) { /* longest first */
        const struct kind moved = traffic->kind[i];
        int at = i;
        for (; at > 0 && traffic->kind[at - 1].seconds < moved.seconds; at--)
            traffic->kind[at] = traffic->kind[at - 1];
        traffic->kind[at] = moved;
    }
}

/* --- words --- */

static void add_causes(struct sbp_text *html, unsigned causes)
{
    const char *comma = "";
    for (int cause = SBP_CAUSE_ACTIVATION; cause < SBP_CAUSES; cause++)
        if (causes >> cause & 1) {
            sbp_markup_add(html, "%s%s", comma, sbp_program_cause_name((enum sbp_cause)cause));
            comma = ", ";
        }
}

static void add_group_name(struct sbp_text *html, const struct traffic *traffic,
                           const struct kind *kind)
{
    char group[SBP_GROUP_BYTES];
    if (kind->stages == 0)
        sbp_text_add(html, "messages between stages");
    else
        sbp_markup_text(html, sbp_operands_group_text(traffic->plan->plan, kind->instr, group));
}

static void add_collectives(struct sbp_text *html, const struct kind *kind)
{
    const char *comma = "";
    for (int i = 0; i < 32; i++)
        if (kind->collectives >> i & 1) {
            sbp_markup_add(html, "%s%s", comma, sbp_collective_name((enum sbp_collective)i));
            comma = ", ";
        }
    if (*comma == '\0')
        sbp_text_add(html, "send");
}

/* --- by level --- */

static void add_number_cells(struct sbp_text *html, double seconds, double bytes, double step_s)
{
    sbp_text_add(html, "<td>");
    sbp_markup_seconds(html, seconds);
    sbp_text_add(html, "</td><td>");
    sbp_markup_share(html, seconds, step_s);
    sbp_text_add(html, "</td><td>");
    sbp_markup_bytes(html, bytes);
    sbp_text_add(html, "</td>");
}

static void add_level(struct sbp_text *html, const struct traffic *traffic, int level)
{
    const struct sbp_level *link = &traffic->plan->plan->workload.cluster.level[level];
    struct kind sum = {.level = level};
    char rate[48], latency[32];
    for (int i = 0; i < traffic->count; i++)
        if (traffic->kind[i].level == level) {
            sum.seconds += traffic->kind[i].seconds;
            sum.bytes += traffic->kind[i].bytes;
            sum.causes |= traffic->kind[i].causes;
        }
    sbp_text_add(html, "<tr>");
    sbp_markup_cell(html, "%s x %lld", link->name, (long long)link->size);
    if (link->beta_s_per_byte > 0)
        sbp_markup_cell(html, "%s, %sB/s%s", sbp_format_seconds(link->alpha_s, latency),
                        sbp_format_count(1 / link->beta_s_per_byte, rate),
                        link->ports > 0 ? " a port" : "");
    else
        sbp_markup_cell(html, "%s", sbp_format_seconds(link->alpha_s, latency));
    add_number_cells(html, sum.seconds, sum.bytes, traffic->plan->report->summary.totals.step_s);
    sbp_text_add(html, "<td class=\"w\">");
    add_causes(html, sum.causes);
    sbp_text_add(html, "</td></tr>\n");
}

static void add_levels(struct sbp_text *html, const struct traffic *traffic)
{
    static const char *const TITLES[] = {"level", "link", "time", "of the step", "sent", "<for"};
    struct sbp_part part[SBP_MAX_LEVELS];
    const struct sbp_cluster *cluster = &traffic->plan->plan->workload.cluster;
    double whole = 0;
    for (int level = 0; level < cluster->level_count; level++) {
        part[level] =
            (struct sbp_part){cluster->level[level].name, sbp_figure_colour(level + 1), 0};
        for (int i = 0; i < traffic->count; i++)
            if (traffic->kind[i].level == level)
                part[level].value += traffic->kind[i].seconds;
        whole += part[level].value;
    }
    if (whole > 0)
        sbp_figure_bar(html, "Time of communication by level; the table below has the numbers",
                       part, cluster->level_count, whole, 0);
    sbp_figure_key(html, part, cluster->level_count);
    sbp_markup_table(html, "Communication by level of the network", 6, TITLES);
    for (int level = 0; level < cluster->level_count; level++)
        add_level(html, traffic, level);
    sbp_markup_table_end(html);
    sbp_text_add(html, "<p class=\"note\">Of a device in a step, overlapped or not; a group that "
                       "spans several levels counts at the outermost. Bytes are what a device "
                       "sends.</p>\n");
}

static void add_kinds(struct sbp_text *html, const struct traffic *traffic)
{
    static const char *const TITLES[] = {"group",       "<collectives", "time",
                                         "of the step", "sent",         "<for"};
    if (traffic->count == 0)
        return;
    sbp_markup_table(html, "Communication by group of ranks", 6, TITLES);
    for (int i = 0; i < traffic->count; i++) {
        const struct kind *kind = &traffic->kind[i];
        sbp_text_add(html, "<tr><td>");
        add_group_name(html, traffic, kind);
        sbp_text_add(html, "</td><td class=\"w\">");
        add_collectives(html, kind);
        sbp_text_add(html, "</td>");
        add_number_cells(html, kind->seconds, kind->bytes,
                         traffic->plan->report->summary.totals.step_s);
        sbp_text_add(html, "<td class=\"w\">");
        add_causes(html, kind->causes);
        sbp_text_add(html, "</td></tr>\n");
    }
    sbp_markup_table_end(html);
}

/* --- ranks --- */

/* The number of a rank's group, from 0: the coordinates that its members share; -1: the rank is in
 * none. */
static int64_t group_number(const struct traffic *traffic, const struct kind *kind, int64_t rank)
{
    const struct sbp_step *step = &traffic->plan->report->step;
    const struct sbp_mesh *mesh = &traffic->plan->plan->cut.mesh;
    const int64_t stage = rank / mesh->devices;
    int64_t number = kind->stages > 1 ? 0 : stage;
    if (kind->tensor >= 0 && !sbp_step_holds(step, (int)stage, kind->tensor))
        return -1;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if ((kind->axes >> axis & 1) == 0)
            number = number * mesh->axis[axis].size +
                     sbp_mesh_coordinate(mesh, rank % mesh->devices, axis);
    return number;
}

static enum sbp_colour group_colour(const struct traffic *traffic, const struct kind *kind,
                                    int64_t rank)
{
    const int64_t number = group_number(traffic, kind, rank);
    return number < 0 ? SBP_COLOUR_REST : sbp_figure_colour(number);
}

/* How ranks lie on the page: devices of a node in a row, nodes below and beside each other. */
struct ground {
    int64_t ranks, drawn, in_row; /* in_row: of a node */
    int64_t across;               /* nodes beside each other */
};

static struct ground ground_of(const struct sbp_plan *plan)
{
    const struct sbp_cluster *cluster = &plan->workload.cluster;
    const int64_t ranks = sbp_cut_devices(&plan->cut);
    struct ground ground = {.ranks = ranks,
                            .drawn = ranks < MOST_DRAWN ? ranks : MOST_DRAWN,
                            .in_row = cluster->level[cluster->level_count - 1].size,
                            .across = 1};
    if (cluster->level_count == 1 || ground.in_row > 16)
        ground.in_row = ranks < 8 ? ranks : 8;
    const int64_t nodes = (ground.drawn + ground.in_row - 1) / ground.in_row;
    while (2 * ground.across * ground.across * (ground.in_row + 1) < nodes)
        ground.across *= 2; /* sizes of groups are powers of two, mostly */
    return ground;
}

static void place_of(const struct ground *ground, int64_t rank, double *x, double *y)
{
    const int64_t node = rank / ground->in_row, row = node / ground->across;
    *x = (double)(node % ground->across) * ((double)ground->in_row + 0.5) * CELL +
         (double)(rank % ground->in_row) * CELL;
    *y = (double)row * (CELL + 3);
}

static void add_cells(struct sbp_text *html, const struct traffic *traffic,
                      const struct ground *ground, const struct kind *kind, int colour)
{
    double x, y;
    bool any = false;
    for (int64_t rank = 0; rank < ground->drawn; rank++) {
        if ((int)group_colour(traffic, kind, rank) != colour)
            continue;
        if (!any)
            sbp_text_add(html, "<path class=\"%s\" d=\"",
                         sbp_figure_class((enum sbp_colour)colour));
        place_of(ground, rank, &x, &y);
        sbp_text_add(html, "M%g %gh%dv%dh-%dz", x, y, CELL - 2, CELL - 2, CELL - 2);
        any = true;
    }
    if (any)
        sbp_text_add(html, "\"/>");
}

static void add_numbers(struct sbp_text *html, const struct traffic *traffic,
                        const struct ground *ground, const struct kind *kind)
{
    double x, y;
    for (int64_t rank = 0; rank < ground->drawn && ground->ranks <= LABELLED; rank++) {
        const int64_t number = group_number(traffic, kind, rank);
        const enum sbp_colour colour = group_colour(traffic, kind, rank);
        const bool light = colour == SBP_COLOUR_SEND || colour == SBP_COLOUR_RECOMPUTE;
        place_of(ground, rank, &x, &y);
        if (number >= 0)
            sbp_text_add(html, "<text%s x=\"%g\" y=\"%g\">%lld</text>", light ? " class=\"d\"" : "",
                         x + (CELL - 2) / 2.0, y + 13, (long long)number);
    }
}

static void add_grid(struct sbp_text *html, const struct traffic *traffic, const struct kind *kind,
                     const char *caption)
{
    const struct ground ground = ground_of(traffic->plan->plan);
    double x, y, width = 0;
    for (int64_t rank = 0; rank < ground.drawn; rank++) {
        place_of(&ground, rank, &x, &y);
        width = fmax(width, x + CELL);
    }
    place_of(&ground, ground.drawn - 1, &x, &y);
    sbp_text_add(html,
                 "<figure><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
                 "role=\"img\" aria-label=\"Ranks by group\" style=\"max-width:%gpx\">",
                 width, y + CELL, fmin(340, 1.6 * width));
    for (int colour = 0; colour < SBP_COLOURS; colour++)
        add_cells(html, traffic, &ground, kind, colour);
    add_numbers(html, traffic, &ground, kind);
    sbp_text_add(html, "</svg><figcaption>");
    sbp_markup_text(html, caption);
    if (kind->instr != NULL) {
        add_group_name(html, traffic, kind);
        sbp_text_add(html, ": ");
        add_causes(html, kind->causes);
        sbp_text_add(html, ", ");
        sbp_markup_seconds(html, kind->seconds);
        sbp_text_add(html, " a step");
    }
    sbp_text_add(html, "</figcaption></figure>\n");
}

static void add_grids(struct sbp_text *html, const struct traffic *traffic)
{
    const struct sbp_plan *plan = traffic->plan->plan;
    const struct ground ground = ground_of(plan);
    int drawn = 0;
    sbp_text_add(html,
                 "<h4>Ranks by group</h4><p class=\"note\">Ranks of one colour and number "
                 "are a group; the innermost level lies in a row%s.",
                 ground.ranks > SBP_COLOUR_REST ? ", and colours come again" : "");
    if (ground.drawn < ground.ranks)
        sbp_text_add(html, " The first %lld of %lld ranks.", (long long)ground.drawn,
                     (long long)ground.ranks);
    sbp_text_add(html, "</p><div class=\"grids\">");
    if (plan->cut.parallel.pipeline > 1) {
        const struct kind stages = {.axes = ~(sbp_axes)0, .tensor = -1};
        add_grid(html, traffic, &stages, "stages of the pipeline");
    }
    for (int i = 0; i < traffic->count && drawn < MOST_GRIDS; i++)
        if (traffic->kind[i].stages > 0) {
            add_grid(html, traffic, &traffic->kind[i], "");
            drawn++;
        }
    sbp_text_add(html, "</div>\n");
}

void sbp_page_groups(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    struct traffic traffic = {.plan = plan};
    add_up(&traffic);
    sbp_page_section(html, number, "groups", "Communication by level, and who talks to whom");
    if (traffic.count == 0) {
        sbp_text_add(html, "<p>No device sends anything.</p>");
    } else {
        add_levels(html, &traffic);
        add_kinds(html, &traffic);
    }
    if (traffic.count > 0 || plan->plan->cut.parallel.pipeline > 1)
        add_grids(html, &traffic);
    sbp_text_add(html, "</section>\n");
}
