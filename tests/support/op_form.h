/* An operator as a sum of products of its operands' elements, played on real shards: what every
 * member makes of what its roles say it holds must add up to what one device makes, forward and
 * backward. What does not fails the test.
 */
#ifndef SBP_TESTS_UNIT_OP_FORM_H
#define SBP_TESTS_UNIT_OP_FORM_H

#include "costmodel/model/op.h"
#include "tests/support/shard_oracle.h"

#define MOST_OPERANDS 5
#define MOST_FACTORS  7

enum operand_kind { INPUT, WEIGHT, IMAGES }; /* images lie where the output's tokens lie */
struct operand {
    enum operand_kind kind;
    int index;            /* among the catalogue's inputs or weights */
    const char *gathered; /* over these roles' axes inside the operator, by blanks; NULL */
    bool sparse;          /* some members may have no use for all that they hold of it */
    struct whole value, gradient;
};

struct factor {
    int operand;
    int64_t at;
};
struct term {
    int64_t out;
    int count;
    struct factor factor[MOST_FACTORS];
};

struct form {
    enum sbp_op_kind kind;
    int operand_count;
    struct operand operand[MOST_OPERANDS];
    const char *summed; /* over these roles' axes outputs go to whom they belong; NULL */
    struct whole y, dy;
    struct term *term;
    int64_t term_count, term_capacity;
};

/* Terms: an output element is the sum of those that name it. */
struct term *add_term(struct form *form, int64_t out);
static inline void times(struct term *term, int operand, int64_t at)
{
    assert_true(term->count < MOST_FACTORS);
    term->factor[term->count++] = (struct factor){operand, at};
}

static inline int64_t at(const struct whole *whole, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t *size = whole->shape.size;
    assert_true(a < size[0] && b < size[1] && c < size[2] && d < size[3]);
    return ((a * size[1] + b) * size[2] + c) * size[3] + d;
}

/* Operands and outputs of random elements. */
#define SHAPE(...) ((const int64_t[4]){__VA_ARGS__})
#define CLASS(...) ((const int[4]){__VA_ARGS__})
void add_operand(struct form *form, enum operand_kind kind, int index, const char *gathered,
                 const int64_t size[4], const int dim_class[4]);
void set_output(struct form *form, const int64_t size[4], const int dim_class[4]);
void drop_form(struct form *form);

/* These functions read axes and distributions from the roles of a mesh's axes. */
sbp_axes axes_of_role(const struct stage *stage, const struct form *form, const int *role,
                      const char *names);
struct sbp_dist operand_dist(const struct stage *stage, const struct form *form, int operand,
                             const int *role);

/* One choice of a role an axis, forward and backward. */
void play(const struct stage *stage, struct form *form, const int *role);

static const int64_t MESHES[][2] = {{2, 3}, {3, 2}, {2, 2}, {1, 2}, {1, 3}};
#define MESH_COUNT ((int)(sizeof MESHES / sizeof MESHES[0]))

typedef void play_pair(const struct stage *stage, void *operands, const int *role);

/* All pairs of an operator's roles. */
void all_pairs(const struct stage *stage, enum sbp_op_kind kind, play_pair *pair, void *operands);
/* play alone. */
void play_any(const struct stage *stage, void *form, const int *role);

/* Makes the operands for so many devices: every class is a multiple of that. */
typedef void make_form(struct form *form, int64_t devices);
/* On all meshes. */
void play_pairs(make_form *make, play_pair *pair);

#endif
