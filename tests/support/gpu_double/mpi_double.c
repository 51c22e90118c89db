/* MPI that takes the memory of the stand-in GPU, with SBP_DOUBLE_AWARE=1; else it is refused there.
 *
 * A message out of that memory leaves late: in a call of MPI that waits, or half a second after it
 * was given. It must still be what it was then, so that who does not wait for the stream that
 * writes it, or writes there before it has left, is found out. Other messages go as ever. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "executor/comm/comm_mpi_priv.h"
#include "tests/support/gpu_double/gpu_double.h"

#define LEAVES_AFTER_S 0.5

struct held {
    struct held *next;
    MPI_Request request;
    const void *device;
    void *bytes; /* (count) as they were given */
    int count, peer, tag;
    double given_s;
    bool started;
};

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *held;

bool sbp_mpi_takes_devices(void)
{
    const char *aware = getenv("SBP_DOUBLE_AWARE");
    return aware != NULL && strcmp(aware, "1") == 0;
}

static bool is_in_range(const void *memory)
{
    size_t bytes;
    const char *first = double_range(&bytes), *at = memory;
    return at >= first && at < first + bytes;
}

static int refuse(const char *why)
{
    (void)fprintf(stderr, "stand-in: MPI: %s\n", why);
    return MPI_ERR_BUFFER;
}

static int check_device(const void *memory, int count)
{
    if (!sbp_mpi_takes_devices())
        return refuse("a buffer is the device's");
    if (!double_is_device(memory, (size_t)count))
        return refuse("a buffer is not the device's any more, or too short");
    return double_is_pooled(memory) ? refuse("a buffer is of a pool of the device") : MPI_SUCCESS;
}

static int start(struct held *one)
{
    int code = check_device(one->device, one->count);
    if (code != MPI_SUCCESS)
        return code;
    double_open();
    const bool same = memcmp(one->bytes, one->device, (size_t)one->count) == 0;
    double_close();
    if (!same)
        return refuse("a message was written to before it had left");
    code = PMPI_Start(&one->request);
    one->started = code == MPI_SUCCESS;
    return code;
}

/* Starts what is old enough, or all. */
static int start_held(bool all)
{
    int code = MPI_SUCCESS;
    (void)pthread_mutex_lock(&held_lock);
    for (struct held *one = held; one != NULL && code == MPI_SUCCESS; one = one->next)
        if (!one->started && (all || sbp_clock_s() - one->given_s > LEAVES_AFTER_S))
            code = start(one);
    (void)pthread_mutex_unlock(&held_lock);
    return code;
}

/* No message overtakes another one of its peer and tag. */
static int start_before(int peer, int tag)
{
    int code = MPI_SUCCESS;
    (void)pthread_mutex_lock(&held_lock);
    for (struct held *one = held; one != NULL && code == MPI_SUCCESS; one = one->next)
        if (!one->started && one->peer == peer && one->tag == tag)
            code = start(one);
    (void)pthread_mutex_unlock(&held_lock);
    return code;
}

/* Makes the request of a message, of a copy of its bytes. */
static int hold(struct held *one, MPI_Datatype type, MPI_Comm comm)
{
    one->bytes = malloc((size_t)one->count);
    if (one->bytes == NULL)
        return MPI_ERR_NO_MEM;
    double_open();
    memcpy(one->bytes, one->device, (size_t)one->count);
    double_close();
    one->given_s = sbp_clock_s();
    return PMPI_Send_init(one->bytes, one->count, type, one->peer, one->tag, comm, &one->request);
}

static void append(struct held *one)
{
    (void)pthread_mutex_lock(&held_lock);
    struct held **end = &held;
    while (*end != NULL)
        end = &(*end)->next;
    *end = one;
    (void)pthread_mutex_unlock(&held_lock);
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (count == 0 || !is_in_range(buffer)) {
        const int before = start_before(peer, tag);
        return before == MPI_SUCCESS ? PMPI_Isend(buffer, count, type, peer, tag, comm, request)
                                     : before;
    }
    int code = check_device(buffer, count);
    struct held *one = code == MPI_SUCCESS ? malloc(sizeof *one) : NULL;
    if (one == NULL)
        return code != MPI_SUCCESS ? code : MPI_ERR_NO_MEM;
    *one = (struct held){.device = buffer, .count = count, .peer = peer, .tag = tag};
    code = hold(one, type, comm);
    if (code != MPI_SUCCESS) {
        free(one->bytes);
        free(one);
        return code;
    }
    *request = one->request;
    append(one);
    return MPI_SUCCESS;
}

/* The place of a request in the list; NULL: it is none of these. */
static struct held **find(MPI_Request request)
{
    struct held **at = &held;
    while (*at != NULL && (*at)->request != request)
        at = &(*at)->next;
    return *at != NULL ? at : NULL;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    int code = start_held(false);
    if (code != MPI_SUCCESS)
        return code;
    (void)pthread_mutex_lock(&held_lock);
    struct held **at = find(*request);
    *done = 0;
    if (at == NULL || (*at)->started)
        code = PMPI_Test(request, done, status);
    if (at != NULL && *done) {
        struct held *one = *at;
        *at = one->next;
        code = PMPI_Request_free(request);
        free(one->bytes);
        free(one);
    }
    (void)pthread_mutex_unlock(&held_lock);
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int done = 0, code = start_held(true);
    while (code == MPI_SUCCESS && !done)
        code = MPI_Test(request, &done, status);
    return code;
}

int MPI_Barrier(MPI_Comm comm)
{
    const int code = start_held(true);
    return code == MPI_SUCCESS ? PMPI_Barrier(comm) : code;
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    int code = start_held(true);
    if (code != MPI_SUCCESS || count == 0 || !is_in_range(buffer))
        return code != MPI_SUCCESS ? code : PMPI_Recv(buffer, count, type, peer, tag, comm, status);
    if (double_hangs("MPI_Recv"))
        for (;;)
            (void)pause();
    code = check_device(buffer, count);
    void *bytes = code == MPI_SUCCESS ? malloc((size_t)count) : NULL;
    if (bytes == NULL)
        return code != MPI_SUCCESS ? code : MPI_ERR_NO_MEM;
    code = PMPI_Recv(bytes, count, type, peer, tag, comm, status);
    double_open();
    memcpy(buffer, bytes, code == MPI_SUCCESS ? (size_t)count : 0);
    double_close();
    free(bytes);
    return code;
}
