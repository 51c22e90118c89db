/* Reads signs in lines that are no part of a table: which network a run used, and that it failed.
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "calib/logs/log_parts_priv.h"

/* --- failures --- */

static const struct {
    const char *sign, *advice;
} failures[] = {
    {"Test timeout", "a collective did not end; find the rank that hangs and run again"},
    {"remote process exited or there was a network error",
     "a rank or its network broke; run again, with NCCL_DEBUG=WARN to see which"},
    {"unhandled system error", "run again with NCCL_DEBUG=WARN: a system call of NCCL failed"},
    {"unhandled cuda error", "run again with NCCL_DEBUG=WARN: a device failed"},
    {"Test NCCL failure", "NCCL failed; run again with NCCL_DEBUG=WARN to see why"},
    {"Test CUDA failure", "a device failed; check the devices that the run was given"},
    {"Test HIP failure", "a device failed; check the devices that the run was given"},
    {"Test failure", "run again with NCCL_DEBUG=WARN to see why"},
    {"Invalid number of GPUs", "run with at most as many ranks a node as it has devices"},
    {"The number of requested GPUs", "run with at most as many ranks a node as it has devices"},
    {"Couldn't allocate a port for PMI", "the launcher failed, not the benchmark; run again"},
    {"CXI alloc failed", "the network refused its resources; run again, alone on the nodes"},
    {"DATA VALIDATION ERROR", "values were wrong; repair the machine and run again"},
    {"Could Not Allocate Memory", "run with a smaller largest message (-m)"},
    {"requires at least two processes", "start it under mpirun or srun"},
    {"requires exactly two processes", "start it with two ranks"},
    {"launch failed on", "the launcher failed, not the benchmark; run again"},
    {"start failed on", "the launcher failed, not the benchmark; run again"},
    {"processes exited with non-zero status", "see the lines above it; run again"},
    {"exited on signal", "a rank crashed; run again"},
    {"MPI_ABORT was invoked", "a rank gave up; run again"},
    {"MPI_Abort(", "a rank gave up; run again"},
    {"Segmentation fault", "a rank crashed; run again"},
    {"Bus error", "a rank crashed; run again"},
    {"Destination is unreachable",
     "a rank lost another one; run again, on other nodes if it comes back"},
    {"ERROR failure in task", "a rank's collective failed (UCC); run again, or without UCC"},
    {"oom-kill", "a rank had too little memory; run with smaller messages"},
    {"Out Of Memory", "a rank had too little memory; run with smaller messages"},
    {"DUE TO TIME LIMIT", "the job was ended; run again with more time"},
    {"CANCELLED AT", "the job was ended; run again"},
    {"Exited with exit code", "the job failed; run again"},
    {"error while loading shared libraries", "the benchmark could not start; set LD_LIBRARY_PATH"},
    {"command not found", "the benchmark is not there"},
    {"No executable was specified", "the benchmark is not there"},
    {"not enough slots available", "the launcher has fewer slots than ranks"},
    {"was unable to launch the specified application", "the benchmark is not there"},
};

/* Debug output repeats what it read, and reports attempts that fail without harm. */
static bool is_debug(const char *line)
{
    static const char *const levels[] = {"NCCL INFO", "NCCL TRACE", "UCX  DIAG",
                                         "UCX  INFO", "UCX  DEBUG", "UCX  TRACE"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strstr(line, levels[i]) != NULL)
            return true;
    return false;
}

bool sbp_log_failure_sign(const char *line, const char **advice)
{
    if (is_debug(line))
        return false;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (strstr(line, failures[i].sign) != NULL) {
            *advice = failures[i].advice;
            return true;
        }
    return false;
}

/* --- networks --- */

/* How far a sign is trusted. */
enum { BY_REMARK = 1, BY_CHOICE, BY_CONNECTION };

/* Signs in the order of how much they say. name NULL: the name is the text behind the sign, up to a
 * blank, a slash or a comma. "NET/Socket : Using" is none, since NCCL prints it of its bootstrap
 * beside any network. */
static const struct {
    const char *sign, *name;
    int trust;
    bool is_said; /* words of a person, read in what is said about a file alone */
} networks[] = {
    {" via NET/", NULL, BY_CONNECTION, false},
    {"Using network ", NULL, BY_CHOICE, false},
    {"NET/OFI Selected Provider is tcp", "Socket", BY_CHOICE, false},
    {"NET/OFI Selected Provider is sockets", "Socket", BY_CHOICE, false},
    {"NET/OFI Selected Provider is ", "OFI", BY_CHOICE, false},
    {"NET/OFI Selected provider is ", "OFI", BY_CHOICE, false},
    {"NET/IB : No device found", "Socket", BY_REMARK, false},
    {"NCCL_NET=Socket", "Socket", BY_REMARK, false},
    {"NCCL_NET=\"Socket\"", "Socket", BY_REMARK, false},
    {"NCCL_IB_DISABLE=1", "Socket", BY_REMARK, false},
    {"TCP sockets", "Socket", BY_REMARK, true},
    {"aws-ofi-nccl", "OFI", BY_REMARK, true},
};

/* Names that stand for one network: "AWS Libfabric/0/GDRDMA" is OFI, "IBext_v8" is IB. */
static const char *known_name(const char *at)
{
    static const struct {
        const char *start, *name;
    } known[] = {{"AWS Libfabric", "OFI"}, {"Libfabric", "OFI"}, {"OFI", "OFI"},
                 {"Socket", "Socket"},     {"IB", "IB"},         {"FasTrak", "FasTrak"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncasecmp(at, known[i].start, strlen(known[i].start)) == 0)
            return known[i].name;
    return NULL;
}

void sbp_log_network_sign(const char *line, bool is_said, const char **network, int *trust,
                          struct sbp_arena *arena)
{
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        const char *at = strstr(line, networks[i].sign);
        if (at == NULL || networks[i].trust <= *trust || (networks[i].is_said && !is_said))
            continue;
        const char *rest = at + strlen(networks[i].sign);
        const char *name = networks[i].name == NULL ? known_name(rest) : networks[i].name;
        if (name == NULL)
            name = sbp_log_copy(arena, rest, (int)strcspn(rest, " /,\t"), 31);
        if (name == NULL || *name == '\0')
            return;
        *network = name;
        *trust = networks[i].trust;
        return;
    }
}

bool sbp_log_is_socket(const char *network)
{
    return network != NULL &&
           (strcasecmp(network, "Socket") == 0 || strcasecmp(network, "TCP") == 0);
}
