/* Words of other trainers and planners, and what stands for them here. Input: an option, a key, a
 * value or a command that is not known. Output: advice for its refusal, which goes before a nearest
 * spelling. */
#ifndef SBP_PLANNER_CLI_FOREIGN_WORDS_H
#define SBP_PLANNER_CLI_FOREIGN_WORDS_H

#include <stddef.h>

/* "tensor parallelism is searched: ..." for "tensor", "--tp", "TP", "tensor-parallel"; the first
 * `length` bytes of the word count. NULL: the word is in no list. */
const char *sbp_foreign_words_advice(const char *word, size_t length);

#endif
