/* One head of latent attention, which the attention of either width of elements computes.
 *
 * Its keys have been put together, and its values lie beside other features. Pointers are to
 * elements of the type at hand. Backward adds to gradients, or writes them where they have 16 bits
 * (of queries, those of the first block): the caller zeroes them.
 */
#ifndef SBP_KERNELS_CPU_LATENT_PRIV_H
#define SBP_KERNELS_CPU_LATENT_PRIV_H

#include "kernels/cpu/attention_priv.h"
#include "kernels/cpu/real_priv.h"

struct cpu_latent_head {
    const void *q, *k, *v, *dy; /* rows q_row, size, v_row and y_row elements apart */
    void *y, *dq, *dk, *dv;     /* likewise; backward reads y */
    void *saved;                /* of this head */
    void *log_sums;             /* (S) wide, of materialised attention to a block; NULL */
    int64_t q_row, v_row, y_row;
    int64_t size, value; /* features of queries and keys, of values */
    struct cpu_queries queries;
    struct cpu_dropout dropout;
    enum sbp_attention_kind kind;
};

/* scratch: sbp_attention_scratch_elements. */
void CPU(latent_head_forward)(const struct cpu_latent_head *head, void *scratch);
void CPU(latent_head_backward)(const struct cpu_latent_head *head, void *scratch);

#endif
