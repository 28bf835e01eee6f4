#include "procs.h"

#include "store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

/* Start time in clock ticks since boot (proc_pid_stat(5), field 22); false when the process is gone or a zombie. */
static bool start_time(int pid, unsigned long long *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return false;
    size_t length = fread(text, 1, sizeof text - 1, stream);
    fclose(stream);
    text[length] = '\0';
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

size_t procs_read(struct use uses[MAX_USES])
{
    char path[PATH_SIZE];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/procs.d", store_folder());
    DIR *folder = opendir(path);
    if (folder == NULL)
        return 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        int pid, end = 0;
        unsigned long long registered, started;
        if (sscanf(entry->d_name, "%d.%llu%n", &pid, &registered, &end) != 2 || entry->d_name[end] != '\0')
            continue;
        if (pid <= 0 || !start_time(pid, &started) || started != registered)
            continue;
        FILE *stream = open_checked(dirfd(folder), entry->d_name, pid);
        if (stream == NULL)
            continue;
        count += read_uses(stream, pid, uses + count, MAX_USES - count);
        fclose(stream);
    }
    closedir(folder);
    qsort(uses, count, sizeof uses[0], by_pid);
    return count;
}
