/* replay.c: runs a fuzz target over files, and over the files in folders, without libFuzzer: replay
 * FILE_OR_FOLDER... */
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#include "fuzz.h"

static size_t replayed;

static void one_file(const char *path, size_t size) {
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = malloc(size > 0 ? size : 1);
  if (file == NULL || bytes == NULL || fread(bytes, 1, size, file) != size) {
    (void)fprintf(stderr, "replay: can't read %s\n", path);
    exit(2);
  }
  (void)fclose(file);
  if (getenv("REPLAY_VERBOSE") != NULL) (void)fprintf(stderr, "%s\n", path);
  (void)LLVMFuzzerTestOneInput(bytes, size);
  free(bytes);
  replayed++;
}

static void one_path(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) {
    perror(path);
    exit(2);
  }
  if (!S_ISDIR(st.st_mode)) {
    one_file(path, (size_t)st.st_size);
    return;
  }
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    char file[PATH_MAX];
    if (entry->d_name[0] == '.') continue;
    (void)snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    one_path(file);
  }
  if (folder != NULL) (void)closedir(folder);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) one_path(argv[i]);
  (void)printf("%zu inputs\n", replayed);
  return replayed == 0;
}
