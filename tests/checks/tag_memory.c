/* tag_memory.c: broken invariants of the tag memory. */
#include "tags/tag_memory.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_tag_memory(int which) {
  static crl_tags tags;
  static crl_tag_versions versions;
  crl_tag_memory *memory = crl_tag_memory_new();
  crl_tags_add(&tags, "tag", 3);
  crl_tag_memory_note(memory, 7, &tags);
  place *p = find(shard_of(memory, 7), 7);
  switch (which) {
    case 0: p->size = 0; break;
    case 1: p->node.link = NULL; break;
    case 2: p->size = CRL_TAG_MEMORY_BYTES + 1; break;
    default: p->names[0] = 77;
  }
  crl_tag_memory_want(memory, 7, &versions);
}

void of_the_tag_memory(void **state) {
  (void)state;
  breaks(break_the_tag_memory, 0, "tag memory: what is remembered has a name");
  breaks(break_the_tag_memory, 1, "tag memory: only names are found");
  breaks(break_the_tag_memory, 2, "tag memory: a key's names are few");
  breaks(break_the_tag_memory, 3, "tag memory: the last name ends with the bytes");
}
