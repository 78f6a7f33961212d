/* names.h: makes the public functions corral_NOUN_name and corral_NOUN_text from the rows of a
 * public table. */
#ifndef CRL_NAMES_H
#define CRL_NAMES_H

#define CRL_NAMES_ROW(id, name, text) {name, text},

/* `type`: of the table's numbers, of which there are `count`; "?" for others. */
#define CRL_NAMES(noun, type, map, count)                                                          \
  static const struct { const char *name, *text; } noun##_rows[] = {map(CRL_NAMES_ROW)};           \
  const char *corral_##noun##_name(type number) {                                                  \
    return (unsigned)number < (count) ? noun##_rows[number].name : "?";                            \
  }                                                                                                \
  const char *corral_##noun##_text(type number) {                                                  \
    return (unsigned)number < (count) ? noun##_rows[number].text : "?";                            \
  }

#endif
