/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef SHIM_RWSEM_H
#define SHIM_RWSEM_H

struct rw_semaphore { int waiters; };
#define DECLARE_RWSEM(name) struct rw_semaphore name

#endif
