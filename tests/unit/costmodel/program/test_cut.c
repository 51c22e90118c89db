/* Cuts are values: several of one model and cluster stand beside each other, and none changes what
 * it was made of. */
#include "costmodel/program/cut.h"
#include "tests/support/model_reader.h"

#define GPT                                                                                        \
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": 4, \"hidden\": 48,"                \
    "\"heads\": 12, \"sequence\": 24, \"vocab\": 48, \"global_batch\": 24}"
#define CLUSTER                                                                                    \
    "{\"name\": \"c\", \"levels\": [{\"name\": \"node\", \"size\": 4, \"alpha_s\": 1e-5,"          \
    "\"beta_s_per_byte\": 1e-10}, {\"name\": \"gpu\", \"size\": 3, \"alpha_s\": 1e-6,"             \
    "\"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 1e12,"                           \
    "\"flops\": {\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e11}}"

struct bench {
    struct model model;
    struct cJSON *tree;
    struct sbp_cluster cluster;
    struct sbp_arena arena;
};

static void bench_open(struct bench *b)
{
    struct sbp_json at;
    struct sbp_diag diag = {{0}};
    memset(b, 0, sizeof *b);
    must_read(&b->model, GPT);
    assert_int_equal(sbp_json_parse(CLUSTER, "c.json", &b->tree, &at, &diag), SBP_OK);
    assert_int_equal(sbp_cluster_read(&at, &b->arena, &b->cluster), SBP_OK);
}

static void bench_close(struct bench *b)
{
    sbp_arena_free(&b->arena);
    cJSON_Delete(b->tree);
    drop(&b->model);
}

static enum sbp_status cut(struct bench *b, int64_t pipeline, int64_t micro_batch,
                           struct sbp_cut *cut, struct sbp_diag *diag)
{
    struct sbp_parallel parallel = sbp_parallel_default(&b->model.graph);
    parallel.pipeline = pipeline;
    parallel.micro_batch = micro_batch;
    return sbp_cut_make(&b->model.graph, &b->cluster, &parallel, &b->arena, cut, diag);
}

/* Every activation of the graph, and its batch class, has so many sequences. */
static void must_hold(const struct sbp_graph *graph, int64_t sequences)
{
    assert_int_equal(graph->micro_batch, sequences);
    for (int t = 0; t < graph->tensor_count; t++)
        if (graph->tensor[t].kind == SBP_ACTIVATION)
            assert_int_equal(graph->tensor[t].shape.size[SBP_DIM_BATCH], sequences);
    for (int c = 0; c < graph->class_count; c++)
        if (strcmp(graph->dim_class[c].name, "batch") == 0)
            assert_int_equal(graph->dim_class[c].size, sequences);
}

static void test_values(void **state)
{
    (void)state;
    struct bench b;
    struct sbp_cut whole, half, quarter;
    struct sbp_diag diag = {{0}};
    bench_open(&b);
    assert_int_equal(cut(&b, 1, 24, &whole, &diag), SBP_OK);
    assert_int_equal(cut(&b, 2, 6, &half, &diag), SBP_OK);
    assert_int_equal(cut(&b, 4, 2, &quarter, &diag), SBP_OK);
    must_hold(&b.model.graph, 24);
    must_hold(&whole.graph, 24);
    must_hold(&half.graph, 6);
    must_hold(&quarter.graph, 2);
    assert_int_equal(whole.stage_level, -1);
    assert_int_equal(half.stage_level, 0);
    assert_int_equal(whole.mesh.devices, 12);
    assert_int_equal(half.mesh.devices, 6);
    assert_int_equal(quarter.mesh.devices, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sbp_cut_devices((const struct sbp_cut *[]){&whole, &half, &quarter}[i]),
                         12);
    assert_ptr_equal(half.cluster, &b.cluster);
    assert_ptr_equal(half.graph.op, b.model.graph.op); /* operators are shared, */
    assert_null(half.graph.arena.head);                /* and freed with the model */
    bench_close(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bench b;
    struct sbp_cut none;
    struct sbp_diag diag = {{0}}, next = {{0}};
    bench_open(&b);
    assert_int_equal(cut(&b, 1, 7, &none, &diag), SBP_E_INPUT);
    assert_non_null(strstr(diag.text, "parallel: micro_batch: "));
    assert_int_equal(cut(&b, 5, 24, &none, &next), SBP_E_INPUT);
    assert_non_null(strstr(next.text, "parallel: pipeline: "));
    must_hold(&b.model.graph, 24);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
