#include "executor/rank/halo_run_priv.h"

#include <stddef.h>

#include "costmodel/model/halo.h"

/* A rank's part of the rows of images, which members hold in the order of their places. */
struct rows {
    struct sbp_halo halo;
    sbp_axes axes;
    int64_t members, member;
    int64_t images, height; /* here */
    int64_t line, row;      /* elements of a row of one image, and of all images here */
};

static struct rows find_rows(const struct sbp_rank *rank, const struct sbp_instr *instr, int images)
{
    const struct sbp_program *program = rank->program;
    const struct sbp_buffer *held = &program->buffer[instr->buffer[images]];
    const struct sbp_shape *shape = &program->graph->tensor[held->tensor].shape;
    const struct sbp_mesh *mesh = &program->mesh;
    struct rows rows = {
        .axes = sbp_dist_split(mesh, &held->dist, SBP_DIM_SEQUENCE),
        .images = sbp_dist_local_size(mesh, shape, &held->dist, SBP_DIM_BATCH),
        .height = sbp_dist_local_size(mesh, shape, &held->dist, SBP_DIM_SEQUENCE),
        .line = sbp_dist_local_size(mesh, shape, &held->dist, SBP_DIM_FEATURE) *
                sbp_dist_local_size(mesh, shape, &held->dist, SBP_DIM_INNER),
    };
    rows.row = rows.images * rows.line;
    rows.members = sbp_mesh_group_size(mesh, rows.axes);
    rows.member = sbp_mesh_group_place(mesh, rows.axes, rank->rank);
    rows.halo = sbp_halo_of(program->graph, &program->graph->op[instr->op], (double)rows.members);
    return rows;
}

/* ---- windows --------------------------------------------------------------------------------- */

void sbp_rank_reach(struct sbp_rank *rank, const struct sbp_instr *instr, int images,
                    struct sbp_windows *windows)
{
    const struct rows rows = find_rows(rank, instr, images);
    const struct sbp_halo_rows reach = sbp_halo_reach(&rows.halo, (double)rows.member);
    windows->padding[0] +=
        rows.member * (windows->height - windows->out_height * windows->stride[0]);
    windows->above = (int64_t)reach.above;
    windows->below = (int64_t)reach.below;
    windows->around = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
}

/* The images of one row each whose windows are those of a row around the block. */
static struct sbp_windows windows_of_row(const struct sbp_windows *windows, int64_t i)
{
    struct sbp_windows one = *windows;
    one.padding[0] +=
        i < windows->above ? i - windows->above : windows->height + i - windows->above;
    one.height = 1;
    one.above = one.below = 0;
    return one;
}

void sbp_rank_form_around(struct sbp_rank *rank, const struct sbp_instr *instr,
                          const struct sbp_windows *windows)
{
    const struct rows rows = find_rows(rank, instr, SBP_AT_OUT);
    const struct sbp_buffer *dy = &rank->program->buffer[instr->buffer[SBP_AT_DY]];
    const int64_t out =
        sbp_dist_local_size(&rank->program->mesh, &rank->program->graph->tensor[dy->tensor].shape,
                            &dy->dist, SBP_DIM_FEATURE);
    unsigned char *const around = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]);
    for (int64_t i = 0; i < windows->above + windows->below; i++) {
        const struct sbp_windows one = windows_of_row(windows, i);
        rank->kernels->conv2d_backward_input(around + i * rows.row * rank->kernels->real_bytes,
                                             sbp_rank_buffer(rank, instr->buffer[SBP_AT_DY]),
                                             sbp_rank_buffer(rank, instr->buffer[SBP_AT_W]), &one,
                                             out);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Rows of a block that another member reaches: images(images, height, line), or their gradient, and
 * apart(count, images, line). */
struct edge {
    unsigned char *images, *apart;
    int64_t first, count;
};

/* Rows that the member at the end of a shift reaches here: the last, or the first ones of who comes
 * before. */
static struct edge find_edge(const struct rows *rows, int64_t shift)
{
    const int64_t other = (rows->member + shift) % rows->members;
    const int64_t count = (int64_t)sbp_halo_fetched(&rows->halo, (double)other, (double)shift);
    return (struct edge){.first = other > rows->member ? rows->height - count : 0, .count = count};
}

/* Copies rows out of the images. */
static void copy_edge(const struct sbp_rank *rank, const struct rows *rows, const struct edge *edge)
{
    const int64_t bytes = rows->line * rank->kernels->real_bytes;
    for (int64_t row = 0; row < edge->count; row++)
        rank->kernels->copy_rows(edge->apart + row * rows->images * bytes, rows->line,
                                 edge->images + (edge->first + row) * bytes,
                                 rows->height * rows->line, rows->line, rows->images);
}

/* Adds what lies apart to the rows of the images. */
static void add_edge(const struct sbp_rank *rank, const struct rows *rows, const struct edge *edge)
{
    const int64_t bytes = rows->line * rank->kernels->real_bytes;
    for (int64_t i = 0; i < edge->count * rows->images; i++) {
        const int64_t row = i / rows->images, image = i % rows->images;
        unsigned char *const held =
            edge->images + (image * rows->height + edge->first + row) * bytes;
        rank->kernels->add(held, held, edge->apart + i * bytes, rows->line);
    }
}

/* The rows of other members among all that this rank fetched. */
static unsigned char *fetched(struct sbp_rank *rank, const struct rows *rows, int buffer,
                              int64_t shift)
{
    const double place = sbp_halo_place(&rows->halo, (double)rows->member, (double)shift);
    unsigned char *const all = sbp_rank_buffer(rank, buffer);
    return all + (int64_t)place * rows->row * rank->kernels->real_bytes;
}

static int64_t count_fetched(const struct rows *rows, int64_t shift)
{
    return (int64_t)sbp_halo_fetched(&rows->halo, (double)rows->member, (double)shift) * rows->row;
}

static enum sbp_status fetch(struct sbp_rank *rank, const struct sbp_instr *instr,
                             const struct rows *rows, int64_t shift, struct sbp_diag *diag)
{
    struct edge edge = find_edge(rows, shift);
    edge.images = sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN]);
    edge.apart = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]);
    copy_edge(rank, rows, &edge);
    const struct sbp_exchange exchange = {
        .kind = SBP_SEND_RECV,
        .members.axes = rows->axes,
        .shift = shift,
        .send = edge.apart,
        .sent = edge.count * rows->row,
        .receive = fetched(rank, rows, instr->buffer[SBP_AT_SAVED], shift),
        .received = count_fetched(rows, shift),
        .count = (int64_t)instr->inner_elements};
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}

/* Rows that come lie behind those that go. */
static enum sbp_status bring_back(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  const struct rows *rows, int64_t shift, struct sbp_diag *diag)
{
    struct edge edge = find_edge(rows, shift);
    edge.images = sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT]);
    edge.apart = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]);
    edge.apart += (int64_t)rows->halo.total * rows->row * rank->kernels->real_bytes;
    const struct sbp_exchange exchange = {
        .kind = SBP_SEND_RECV,
        .members.axes = rows->axes,
        .shift = -shift,
        .send = fetched(rank, rows, instr->buffer[SBP_AT_WORK], shift),
        .sent = count_fetched(rows, shift),
        .receive = edge.apart,
        .received = edge.count * rows->row,
        .count = (int64_t)instr->inner_elements};
    SBP_TRY(sbp_channel_exchange(rank->channel, &exchange, diag));
    add_edge(rank, rows, &edge);
    return SBP_OK;
}

/* An instruction stands for the steps whose messages are as large as it says. */
enum sbp_status sbp_rank_share_rows(struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag)
{
    const bool fetches = instr->buffer[SBP_AT_IN] >= 0;
    const struct rows rows = find_rows(rank, instr, fetches ? SBP_AT_IN : SBP_AT_OUT);
    for (int64_t shift = 1; shift < rows.members; shift++) {
        const int64_t message = (int64_t)sbp_halo_message(&rows.halo, (double)shift);
        if (message * rows.row == (int64_t)instr->inner_elements)
            SBP_TRY((fetches ? fetch : bring_back)(rank, instr, &rows, shift, diag));
    }
    return SBP_OK;
}
