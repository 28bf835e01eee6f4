#include "store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_STATE = 1 << 20, PATH_SIZE = 512 };

static struct state current;
static struct stat current_file; /* which file `current` was read from */
static bool current_is_read;
static int lock = -1;

const char *store_folder(void)
{
    const char *folder = secure_getenv("GPUSIM_STATE");
    return folder == NULL || *folder == '\0' ? "/run/gpusim" : folder;
}

static bool path_in(char path[PATH_SIZE], const char *name)
{
    int length = snprintf(path, PATH_SIZE, "%s/%s", store_folder(), name);
    return length > 0 && length < PATH_SIZE;
}

static bool same_file(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_dev == other->st_dev && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static bool read_all(int file, char *text, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t count = read(file, text + done, size - done);
        if (count <= 0)
            return false;
        done += (size_t)count;
    }
    text[size] = '\0';
    return memchr(text, '\0', size) == NULL;
}

static bool read_file(int file)
{
    struct stat status;
    if (fstat(file, &status) != 0 || status.st_size <= 0 || status.st_size > LARGEST_STATE)
        return false;
    if (current_is_read && same_file(&status, &current_file))
        return true;
    char *text = malloc((size_t)status.st_size + 1);
    current_is_read = text != NULL && read_all(file, text, (size_t)status.st_size) && state_parse(&current, text);
    current_file = status;
    free(text);
    return current_is_read;
}

struct state *store_read(void)
{
    char path[PATH_SIZE];
    int file = path_in(path, "state") ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return NULL;
    bool good = read_file(file);
    close(file);
    return good ? &current : NULL;
}

static void unlock(void)
{
    close(lock);
    lock = -1;
}

struct state *store_begin(void)
{
    char path[PATH_SIZE];
    lock = path_in(path, "lock") ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (lock < 0)
        return NULL;
    struct state *state = flock(lock, LOCK_EX) == 0 ? store_read() : NULL;
    if (state == NULL)
        unlock();
    return state;
}

/* What cards remember without power; see gpusim/power.py. */
static void write_inforom(FILE *stream)
{
    for (size_t i = 0; i < current.card_count; i++)
        if (current.cards[i].facts->mig_mode_kept)
            fprintf(stream, "%s %u\n", current.cards[i].uuid, current.cards[i].mig_pending);
}

static void write_state(FILE *stream)
{
    state_render(&current, stream);
}

static bool replace_file(const char *path, void (*writer)(FILE *))
{
    char temporary[PATH_SIZE + 8];
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return false;
    int file = mkostemp(temporary, O_CLOEXEC);
    FILE *stream = file < 0 ? NULL : fdopen(file, "w");
    if (stream == NULL)
        return false;
    writer(stream);
    bool good = fchmod(file, 0644) == 0 && !ferror(stream);
    good = fclose(stream) == 0 && good;
    good = good && rename(temporary, path) == 0;
    if (!good)
        unlink(temporary);
    return good;
}

/* The state comes last: until it is replaced nothing has changed for anybody. */
static bool write_all(void)
{
    char path[PATH_SIZE];
    const char *inforom = current.driver.inforom;
    return path_in(path, "state") && (inforom[0] == '\0' || replace_file(inforom, write_inforom)) &&
           replace_file(path, write_state);
}

bool store_end(bool keep)
{
    bool good = !keep || write_all();
    current_is_read = false; /* what was changed in memory and not written must not be seen */
    unlock();
    return good;
}

bool store_is_root(void)
{
    struct stat status;
    return geteuid() == 0 || (stat(store_folder(), &status) == 0 && status.st_uid == geteuid());
}
