#include "tests/papers/signatures.h"

#include <stdio.h>

#include "base/math/random.h"

enum { SIDE = 4, MOST_DEVICES = 4 };

struct shards {
    bool there[MOST_DEVICES][SIDE][SIDE];
    int64_t value[MOST_DEVICES][SIDE][SIDE];
};

bool signature_equal(const struct signature *left, const struct signature *right)
{
    return sbp_state_equal(left->a, right->a) && sbp_state_equal(left->b, right->b) &&
           sbp_state_equal(left->c, right->c);
}

struct sbp_state signature_state(int i)
{
    return i < 2 ? SBP_STATE_S((uint8_t)i) : i == 2 ? SBP_STATE_B : SBP_STATE_P;
}

const char *signature_state_text(struct sbp_state state, char *buffer)
{
    if (state.kind == SBP_SPLIT)
        (void)snprintf(buffer, 8, "S(%u)", (unsigned)state.dim % 10);
    else
        (void)snprintf(buffer, 8, "%s", state.kind == SBP_BROADCAST ? "B" : "P");
    return buffer;
}

/* An axis is one bit of a device's rank, and one bit of every index that it splits. */
static int bit(int axes, int axis, int of)
{
    return of >> (axes - 1 - axis) & 1;
}

static bool owns(int axes, const struct sbp_state *state, int rank, int row, int column)
{
    for (int axis = 0; axis < axes; axis++)
        if (state[axis].kind == SBP_SPLIT &&
            bit(2, axis, state[axis].dim == 0 ? row : column) != bit(axes, axis, rank))
            return false;
    return true;
}

/* The rank's bits on the axes that hold a partial sum. */
static int member(int axes, const struct sbp_state *state, int rank)
{
    int member = 0;
    for (int axis = 0; axis < axes; axis++)
        if (state[axis].kind == SBP_PARTIAL)
            member = 2 * member + bit(axes, axis, rank);
    return member;
}

static int64_t drawn(int matrix, int place, int row, int column)
{
    const uint64_t at = (uint64_t)(place * SIDE + row) * SIDE + (uint64_t)column;
    return (int64_t)(sbp_random_bits_at(UINT64_C(4217), (uint64_t)matrix, at) % 19) - 9;
}

static int64_t true_value(int matrix, int row, int column)
{
    return drawn(matrix, 0, row, column);
}

/* Returns a member's share of a partial sum. Members other than 0 draw theirs; member 0 holds the
 * difference to the true value. */
static int64_t share(int matrix, int members, int own, int row, int column)
{
    if (own > 0)
        return drawn(matrix, own, row, column);
    int64_t rest = true_value(matrix, row, column);
    for (int other = 1; other < members; other++)
        rest -= drawn(matrix, other, row, column);
    return rest;
}

static void deal(int axes, const struct sbp_state *state, int matrix, struct shards *shards)
{
    const int last = (1 << axes) - 1, members = member(axes, state, last) + 1;
    for (int r = 0; r <= last; r++)
        for (int i = 0; i < SIDE * SIDE; i++) {
            const int row = i / SIDE, column = i % SIDE;
            shards->there[r][row][column] = owns(axes, state, r, row, column);
            shards->value[r][row][column] =
                share(matrix, members, member(axes, state, r), row, column);
        }
}

/* Each device multiplies what it holds; false where the blocks do not fit each other. */
static bool multiply(int devices, const struct shards *a, const struct shards *b, struct shards *c)
{
    *c = (struct shards){0};
    for (int r = 0; r < devices; r++)
        for (int i = 0; i < SIDE * SIDE * SIDE; i++) {
            const int row = i / SIDE / SIDE, column = i / SIDE % SIDE, k = i % SIDE;
            bool in_a = false, in_b = false; /* k's row of A and column of B, anywhere */
            for (int any = 0; any < SIDE; any++) {
                in_a |= a->there[r][any][k];
                in_b |= b->there[r][k][any];
            }
            if (in_a != in_b)
                return false;
            if (!a->there[r][row][k] || !b->there[r][k][column])
                continue;
            c->there[r][row][column] = true;
            c->value[r][row][column] += a->value[r][row][k] * b->value[r][k][column];
        }
    return true;
}

static int64_t product(int row, int column)
{
    int64_t sum = 0;
    for (int k = 0; k < SIDE; k++)
        sum += true_value(0, row, k) * true_value(1, k, column);
    return sum;
}

/* Whether device r and its fellows in a partial sum hold an element of C as the state says. */
static bool is_made(int axes, const struct sbp_state *state, const struct shards *c, int rank,
                    int row, int column)
{
    const bool there = owns(axes, state, rank, row, column);
    if (c->there[rank][row][column] != there)
        return false;
    int fellows = 0; /* bits in which they may differ */
    for (int axis = 0; axis < axes; axis++)
        if (state[axis].kind == SBP_PARTIAL)
            fellows |= 1 << (axes - 1 - axis);
    int64_t sum = 0;
    for (int r = 0; r < 1 << axes; r++)
        if ((r & ~fellows) == (rank & ~fellows))
            sum += c->value[r][row][column];
    return !there || sum == product(row, column);
}

bool signature_holds(const struct signature *signature, int axes)
{
    struct sbp_state a[2], b[2], c[2];
    struct shards left, right, made;
    for (int axis = 0; axis < axes; axis++) {
        a[axis] = signature[axis].a;
        b[axis] = signature[axis].b;
        c[axis] = signature[axis].c;
    }
    deal(axes, a, 0, &left);
    deal(axes, b, 1, &right);
    if (!multiply(1 << axes, &left, &right, &made))
        return false;
    for (int r = 0; r < 1 << axes; r++)
        for (int i = 0; i < SIDE * SIDE; i++)
            if (!is_made(axes, c, &made, r, i / SIDE, i % SIDE))
                return false;
    return true;
}
