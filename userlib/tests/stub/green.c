/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Green contexts. The handle of one is that of its context, too. */
#define _GNU_SOURCE
#include <stdlib.h>
#include "stub.h"

CUresult cuDevicePrimaryCtxRetain(void **context, int device);
CUresult cuDevicePrimaryCtxRelease_v2(int device);

/*
 * "This API will retain the primary context on device dev, which will is released when the green context
 * is destroyed. ... The API does not set the green context current." (Driver API, cuGreenCtxCreate)
 */
EXPORT CUresult cuGreenCtxCreate(void **out, void *resources, int device, unsigned int flags)
{
	struct context *green = calloc(1, sizeof(*green));
	void *primary;
	CUresult code = cuDevicePrimaryCtxRetain(&primary, device);

	if (!green)
		abort();
	green->device = device;
	green->primary = primary;
	*out = green;
	return code;
}

EXPORT CUresult cuCtxFromGreenCtx(void **out, void *green)
{
	*out = green;
	return SUCCESS;
}

/*
 * "Destroys the green context, releasing the primary context of the device that this green context was
 * created for." (Driver API, cuGreenCtxDestroy). Whether events that were made in it are there still, no
 * sentence says: here they are not.
 */
EXPORT CUresult cuGreenCtxDestroy(void *context)
{
	struct context *green = context;
	CUresult code = enter(false);

	if (!code) {
		run_context(green);
		green->ends++;
		note("green destroy");
	}
	pthread_mutex_unlock(&lock);
	return code ? code : cuDevicePrimaryCtxRelease_v2(green->device);
}
