#include "procs.h"

#include "store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

/* A registration that was read and believed. The driver answers from its own memory; reading every file again for each
 * card and list would make clients look dearer than they are. Whether the process still lives is never remembered. */
struct registration {
    int pid;
    unsigned long long start;
    struct stat file;
    struct use *uses;
    size_t count;
};

static struct registration known[MAX_USES];
static size_t known_count;
static struct stat known_folder; /* as it was when all of it was read */

/* Start time in clock ticks since boot (proc_pid_stat(5), field 22); false when the process is gone or a zombie. */
static bool start_time(int pid, unsigned long long *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = '\0';
    const char *fields = strrchr(text, ')'); /* the command before it may hold anything */
    char status;
    if (fields == NULL)
        return false;
    int count = sscanf(fields, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                       &status, start);
    return count == 2 && status != 'Z' && status != 'X';
}

/* Real user id (proc_pid_status(5)). */
static bool user_of(int pid, unsigned *user)
{
    char path[64], line[256];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return false;
    while (!found && fgets(line, sizeof line, stream) != NULL)
        found = sscanf(line, "Uid: %u", user) == 1;
    fclose(stream);
    return found;
}

/* A file counts only if it is an ordinary one of root or of the process's own user: the folder is open to all. */
static FILE *open_checked(int folder, const char *name, int pid)
{
    struct stat status;
    unsigned user;
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return NULL;
    FILE *stream = NULL;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && user_of(pid, &user) &&
        (status.st_uid == 0 || status.st_uid == user))
        stream = fdopen(file, "r");
    if (stream == NULL)
        close(file);
    return stream;
}

static size_t read_uses(FILE *stream, int pid, struct use *uses, size_t room)
{
    char line[256];
    size_t count = 0;
    while (count < room && fgets(line, sizeof line, stream) != NULL) {
        struct use use = {.pid = pid};
        if (sscanf(line, "use card=%u gi=%d ci=%d mib=%u sm=%u memory=%u kind=%c", &use.card, &use.gi, &use.ci,
                   &use.mib, &use.sm, &use.memory, &use.kind) == 7)
            uses[count++] = use;
    }
    return count;
}

static int by_pid(const void *one, const void *other)
{
    return ((const struct use *)one)->pid - ((const struct use *)other)->pid;
}

static bool is_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_ctim.tv_sec == other->st_ctim.tv_sec && one->st_ctim.tv_nsec == other->st_ctim.tv_nsec;
}

/* Files are replaced by rename, so each change changes the folder. Its time moves with the kernel's tick: a folder that
 * changed within the last ticks may change again without showing it. */
static bool is_folder_known(const struct stat *folder)
{
    enum { TICKS_NS = 50 * 1000 * 1000 };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long long age = (now.tv_sec - folder->st_ctim.tv_sec) * 1000000000LL + now.tv_nsec - folder->st_ctim.tv_nsec;
    return is_same(folder, &known_folder) && age > TICKS_NS;
}

static void remember(size_t place, int pid, unsigned long long start, const struct stat *file, FILE *stream)
{
    struct use uses[MAX_USES];
    size_t count = read_uses(stream, pid, uses, MAX_USES);
    struct use *kept = malloc((count + 1) * sizeof kept[0]);
    if (kept == NULL)
        abort();
    memcpy(kept, uses, count * sizeof kept[0]);
    free(known[place].uses);
    known[place] = (struct registration){pid, start, *file, kept, count};
}

/* Reads what changed; a file that proves nothing is as if it were not there. */
static void read_folder(DIR *folder)
{
    size_t place = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL && place < MAX_USES; entry = readdir(folder)) {
        int pid, end = 0;
        unsigned long long start;
        struct stat file;
        if (sscanf(entry->d_name, "%d.%llu%n", &pid, &start, &end) != 2 || entry->d_name[end] != '\0' || pid <= 0)
            continue;
        if (fstatat(dirfd(folder), entry->d_name, &file, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        const struct registration *before = &known[place];
        if (place >= known_count || before->pid != pid || before->start != start || !is_same(&before->file, &file)) {
            FILE *stream = open_checked(dirfd(folder), entry->d_name, pid);
            if (stream == NULL)
                continue;
            remember(place, pid, start, &file, stream);
            fclose(stream);
        }
        place++;
    }
    for (size_t i = place; i < known_count; i++) {
        free(known[i].uses);
        known[i] = (struct registration){.pid = 0};
    }
    known_count = place;
}

static size_t uses_of(const struct registration *one, unsigned card, char kind, struct use *uses, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < one->count && count < room; i++)
        if (one->uses[i].card == card && (kind == PROCS_OF_ALL_KINDS || one->uses[i].kind == kind))
            uses[count++] = one->uses[i];
    return count;
}

size_t procs_read(struct use uses[MAX_USES], unsigned card, char kind)
{
    char path[PATH_SIZE];
    size_t count = 0;
    struct stat status;
    snprintf(path, sizeof path, "%s/procs.d", store_folder());
    if (stat(path, &status) != 0)
        return 0;
    if (!is_folder_known(&status)) {
        DIR *folder = opendir(path);
        if (folder == NULL)
            return 0;
        read_folder(folder);
        closedir(folder);
        known_folder = status;
    }
    for (size_t i = 0; i < known_count; i++) {
        unsigned long long started;
        size_t added = uses_of(&known[i], card, kind, uses + count, MAX_USES - count);
        if (added > 0 && start_time(known[i].pid, &started) && started == known[i].start)
            count += added;
    }
    qsort(uses, count, sizeof uses[0], by_pid);
    return count;
}
