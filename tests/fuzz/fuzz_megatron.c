/* Command lines of Megatron-LM: what is read and agrees with a model becomes a strategy, or is
 * refused with a reason. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "planner/degrees/megatron.h"
#include "tests/fuzz/fuzz.h"

static const char MODEL[] =
    "{\"name\": \"mixtral\", \"architecture\": \"mixtral\", \"layers\": 4, \"hidden\": 16,"
    "\"heads\": 4, \"kv_heads\": 2, \"ffn\": 16, \"experts\": 4, \"top_k\": 2, \"sequence\": 16,"
    "\"vocab\": 32, \"global_batch\": 16}";
static const char CLUSTER[] =
    "{\"name\": \"nodes\", \"levels\": [{\"name\": \"node\", \"size\": 4, \"alpha_s\": 1e-5,"
    "\"beta_s_per_byte\": 1e-10}, {\"name\": \"gpu\", \"size\": 4, \"alpha_s\": 1e-6,"
    "\"beta_s_per_byte\": 1e-11}], \"device\": {\"memory_bytes\": 1e9, \"flops\": {\"fp32\": "
    "1e12}, \"memory_bytes_per_s\": 1e12}}";

static void apply(const struct sbp_megatron_flags *flags, struct sbp_plan *plan,
                  struct sbp_diag *diag)
{
    struct sbp_degrees_plan made;
    if (sbp_degrees_apply(&flags->degrees, plan, &plan->arena, &made, diag) != SBP_OK) {
        fuzz_check(diag->text[0] != '\0', "a reason");
        return;
    }
    const struct sbp_degrees *d = &made.degrees;
    fuzz_check(d->tensor * d->context * d->data * d->pipeline == 16, "all devices are used");
    fuzz_check(made.fix_count > 0, "a fix of every layer");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct sbp_diag diag = {{0}};
    struct sbp_megatron_flags flags;
    struct sbp_plan plan;
    fuzz_check(sbp_plan_begin(cJSON_Parse(MODEL), "model", cJSON_Parse(CLUSTER), "cluster", &plan,
                              &diag) == SBP_OK,
               diag.text);
    enum sbp_status status = sbp_megatron_read(text, &flags, &diag);
    if (status == SBP_OK)
        status = sbp_megatron_check(&flags, plan.workload.model_json, &plan.workload.model, &diag);
    if (status == SBP_OK)
        apply(&flags, &plan, &diag);
    else
        fuzz_check(strncmp(diag.text, "--megatron: ", 12) == 0, diag.text);
    sbp_plan_free(&plan);
    free(text);
    return 0;
}
