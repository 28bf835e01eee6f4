/* The state on disk: read when it changed, written under a lock and replaced in one step. */
#ifndef GPUSIM_STORE_H
#define GPUSIM_STORE_H

#include "state.h"

/* GPUSIM_STATE or /run/gpusim; not followed in programs that run with raised rights. */
const char *store_folder(void);

/* The machine as it stands, NULL when there is none or it cannot be understood. Valid until the next call. */
struct state *store_read(void);

/* Takes the lock and reads anew; the caller may change what it gets. NULL as above, the lock is free then. */
struct state *store_begin(void);

/* Writes what was changed since store_begin (unless `keep` is false) and frees the lock. False when that failed. */
bool store_end(bool keep);

/* Whether the caller is root of the simulated machine: root, or owner of the folder. */
bool store_is_root(void);

#endif
