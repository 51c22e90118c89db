/* The sections of a page, each a function that appends one. */
#ifndef SBP_PLANNER_PAGE_PAGE_PRIV_H
#define SBP_PLANNER_PAGE_PAGE_PRIV_H

#include "planner/page/figure.h"
#include "planner/page/page.h"

extern const char sbp_page_style[]; /* the style sheet */

/* Begins a section of plan `number`, from 1; 0: of the page. The caller ends it: </section>. */
void sbp_page_section(struct sbp_text *html, int number, const char *id, const char *title);

/* Whether a limit is drawn beside so much that is held: not where that would be a dot below it. */
static inline bool sbp_page_shows_limit(double held_bytes, double limit_bytes)
{
    return held_bytes > 0.1 * limit_bytes;
}

/* Which of `all` stages row i of `rows` shows: all, or some spread evenly, the first and the last
 * among them. */
static inline int sbp_page_spread(int row, int rows, int all)
{
    return rows == 1 ? 0 : (int)((int64_t)row * (all - 1) / (rows - 1));
}

/* --- of one plan --- */

/* What a device may hold: what the search was limited to, else its memory. */
double sbp_page_limit_bytes(const struct sbp_page_plan *plan);

void sbp_page_time(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
/* E_MEMORY. A step that is too long to be drawn is said to be. */
enum sbp_status sbp_page_timeline(struct sbp_text *html, const struct sbp_page_plan *plan,
                                  int number, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_page_memory(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
/* Communication by level, and the ranks coloured by the groups that communicate. */
void sbp_page_groups(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
void sbp_page_layers(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
/* What the proof says, what was assumed, where the page comes from. */
void sbp_page_proof(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
void sbp_page_assumed(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
void sbp_page_origin(struct sbp_text *html, const struct sbp_page_plan *plan, int number);
/* "optimal over common roles and rests", "at most 1.2 % above the best over ...", "priced, not
 * searched": what is known of a plan's rank. */
#define SBP_PAGE_RANK_BYTES 128
const char *sbp_page_rank(const struct sbp_plan *plan, char buffer[SBP_PAGE_RANK_BYTES]);

/* --- of several files --- */

void sbp_page_beside(struct sbp_text *html, const struct sbp_page *page);
/* E_INPUT, E_MEMORY. */
enum sbp_status sbp_page_sweep(struct sbp_text *html, const struct sbp_page_file *sweep, int number,
                               struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_page_run(struct sbp_text *html, const struct sbp_page *page, int run,
                             struct sbp_diag *diag) SBP_MUST_USE;

#endif
