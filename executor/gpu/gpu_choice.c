/* Gives each rank a GPU, and tells all ranks alike where one has none of its own. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "executor/gpu/gpu.h"

/* A rank's words about itself. They travel as the doubles that their bytes fill. */
union place {
    struct {
        char host[64], gpu[32], why[128]; /* gpu: its address on the bus; "": none, see why */
    } said;
    double moved[(64 + 32 + 128) / sizeof(double)];
};

/* The device of the index-th rank of this host. Ranks that a launcher gave a device each see one.
 */
static void choose_device(int index, union place *own)
{
    struct sbp_diag why = {0};
    int devices = 0;
    enum sbp_status status =
        sbp_cuda_check(&why, "cudaGetDeviceCount", (int)cudaGetDeviceCount(&devices));
    if (status == SBP_OK && devices == 0)
        status = sbp_fail(&why, SBP_E_BACKEND, "cudaGetDeviceCount: 0");
    if (status == SBP_OK)
        status = sbp_cuda_check(&why, "cudaSetDevice", (int)cudaSetDevice(index % devices));
    if (status == SBP_OK)
        status = sbp_cuda_check(
            &why, "cudaDeviceGetPCIBusId",
            (int)cudaDeviceGetPCIBusId(own->said.gpu, sizeof own->said.gpu, index % devices));
    if (status != SBP_OK)
        own->said.gpu[0] = '\0';
    (void)snprintf(own->said.why, sizeof own->said.why, "%.120s", why.text);
}

/* Every rank comes to the same answer. */
static enum sbp_status check_places(const union place *places, int size, struct sbp_diag *diag)
{
    for (int r = 0; r < size; r++)
        if (places[r].said.gpu[0] == '\0')
            return sbp_fail(diag, SBP_E_UNSUPPORTED,
                            "backend nccl: rank %d (host %s) has no GPU: %s", r,
                            places[r].said.host, places[r].said.why);
    for (int r = 0; r < size; r++)
        for (int other = 0; other < r; other++)
            if (strcmp(places[r].said.host, places[other].said.host) == 0 &&
                strcmp(places[r].said.gpu, places[other].said.gpu) == 0)
                return sbp_fail(diag, SBP_E_UNSUPPORTED,
                                "backend nccl: ranks %d and %d (host %s) have the same GPU, %s: "
                                "NCCL wants one for each, start no more ranks on a host than it "
                                "has GPUs",
                                other, r, places[r].said.host, places[r].said.gpu);
    return SBP_OK;
}

/* All ranks by the endpoint that the host has. */
struct ranks {
    const struct sbp_endpoint *host;
    int rank, size, everybody; /* everybody: their group */
    struct sbp_diag *diag;
};

static enum sbp_status check(const struct ranks *ranks, enum sbp_status status)
{
    if (status == SBP_OK)
        return SBP_OK;
    return sbp_fail(ranks->diag, status, "%s", ranks->host->ops->reason(ranks->host->comm));
}

/* places (size): of all ranks. */
static enum sbp_status gather_places(const struct ranks *ranks, const union place *own,
                                     union place *places)
{
    return check(
        ranks, ranks->host->ops->all_gather(ranks->host->comm, ranks->everybody, places, own->moved,
                                            sizeof own->moved / sizeof *own->moved, SBP_F64));
}

static enum sbp_status choose_among(const struct ranks *ranks, union place *places,
                                    enum sbp_status *refused, struct sbp_diag *why)
{
    union place own = {.moved = {0}};
    struct utsname names;
    const bool is_known = uname(&names) == 0;
    (void)snprintf(own.said.host, sizeof own.said.host, "%.63s", is_known ? names.nodename : "");
    SBP_TRY(gather_places(ranks, &own, places));
    int index = 0;
    for (int r = 0; r < ranks->rank; r++)
        index += strcmp(places[r].said.host, own.said.host) == 0;
    choose_device(index, &own);
    SBP_TRY(gather_places(ranks, &own, places));
    *refused = check_places(places, ranks->size, why);
    return SBP_OK;
}

enum sbp_status sbp_gpu_choose(const struct sbp_endpoint *host, enum sbp_status *refused,
                               struct sbp_diag *why, struct sbp_diag *diag)
{
    struct ranks ranks = {.host = host,
                          .rank = host->ops->rank(host->comm),
                          .size = host->ops->size(host->comm),
                          .diag = diag};
    union place *places = calloc((size_t)ranks.size, sizeof *places);
    int *members = calloc((size_t)ranks.size, sizeof *members);
    enum sbp_status status = SBP_OK;
    if (places == NULL || members == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "%d ranks: out of memory", ranks.size);
    for (int r = 0; status == SBP_OK && r < ranks.size; r++)
        members[r] = r;
    if (status == SBP_OK)
        status =
            check(&ranks, host->ops->group(host->comm, members, ranks.size, 0, &ranks.everybody));
    if (status == SBP_OK)
        status = choose_among(&ranks, places, refused, why);
    free(members);
    free(places);
    return status;
}
