/* visible.c: foreign bytes as a text of one line (corral/log.h). */
#include <string.h>

#include <corral/log.h>

/* Length of the valid UTF-8 sequence at `at`; 0: it is invalid (RFC 3629: no overlong forms, no
 * surrogates). */
static size_t utf8_length(const unsigned char *at, size_t left) {
  size_t n = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : (at[0] & 0xf0) == 0xe0 ? 3 : 0;
  if (at[0] >= 0xf0 && at[0] <= 0xf4) n = 4;
  if (n == 0 || n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  int bad = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
            (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f);
  return bad ? 0 : n;
}

/* The code point of a sequence of `n` bytes. */
static unsigned long character(const unsigned char *at, size_t n) {
  unsigned long code = n == 1 ? at[0] : at[0] & (0x7fu >> n);
  for (size_t i = 1; i < n; i++) code = code << 6 | (at[i] & 0x3f);
  return code;
}

/* True for controls, including C1, for characters that change a text's direction, and for invisible
 * ones. */
static int is_hidden(unsigned long code) {
  static const unsigned long ranges[][2] = {{0, 0x1f},        {0x7f, 0x9f},      {0xad, 0xad},
                                            {0x61c, 0x61c},   {0x180e, 0x180e},  {0x200b, 0x200f},
                                            {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                                            {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    if (code >= ranges[i][0] && code <= ranges[i][1]) return 1;
  return 0;
}

int corral_character_read(const void *data, size_t len, size_t *ret_len, uint32_t *ret_code) {
  const unsigned char *bytes = data;
  size_t n = utf8_length(bytes, len);
  *ret_len = n > 0 ? n : 1;
  *ret_code = n > 0 ? (uint32_t)character(bytes, n) : bytes[0];
  return n > 0 && !is_hidden(*ret_code);
}

size_t corral_text_show(const void *data, size_t len, char *text, size_t size) {
  static const char hex[] = "0123456789abcdef";
  const unsigned char *bytes = data;
  size_t used = 0;
  if (size > 0) text[0] = '\0';
  if (size < 4 + sizeof "...") return 0;
  for (size_t i = 0, n; i < len; i += n) {
    uint32_t code;
    int is_shown = corral_character_read(bytes + i, len - i, &n, &code);
    if (!is_shown) n = 1;
    if (used + 4 + sizeof "..." > size) {
      memcpy(text + used, "...", 3);
      used += 3;
      break;
    }
    if (is_shown)
      memcpy(text + used, bytes + i, n);
    else
      memcpy(text + used, (char[]){'\\', 'x', hex[bytes[i] >> 4], hex[bytes[i] & 15]}, 4);
    used += is_shown ? n : 4;
  }
  text[used] = '\0';
  return used;
}
