/* Strict JSON grammar (RFC 8259), checked before the parser sees the text.
 *
 * cJSON takes what the standard forbids (leading zeros, raw control characters) and says only where
 * it gave up. This check names the line and what was expected there. It also refuses text that is
 * no UTF-8, and anything that a tree of C strings and doubles cannot hold: \u0000, numbers over 63
 * characters, nesting deeper than 64. What passes here, cJSON parses, unless memory is out.
 */
#ifndef SBP_BASE_JSON_JSON_SYNTAX_PRIV_H
#define SBP_BASE_JSON_JSON_SYNTAX_PRIV_H

#include "base/status.h"

/* `file: line N: what is wrong`; E_INPUT or OK. `file` is the name used in the message. */
enum sbp_status sbp_json_check_syntax(const char *text, const char *file,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
