/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A library that wraps a function of libc's, as tools do, and a program that uses
 * it: dlsym(RTLD_NEXT) must mean "after this library", whoever stands in dlsym.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef WRAPPER
int wrapped;

char *strdup(const char *s)
{
	char *(*next)(const char *);

	*(void **)&next = dlsym(RTLD_NEXT, "strdup");
	if ((void *)next == (void *)strdup)
		return NULL;
	wrapped++;
	return next(s);
}
#else
extern int wrapped;

int main(void)
{
	char *copy = strdup("copy");
	Dl_info info;
	void *puts_address = dlsym(RTLD_DEFAULT, "puts");

	if (!copy || strcmp(copy, "copy") || wrapped != 1)
		return 1;
	if (!puts_address || !dladdr(puts_address, &info) || !strstr(info.dli_fname, "libc"))
		return 2;
	/* What is not there, and CUDA where there is none. */
	if (dlsym(RTLD_DEFAULT, "no_such_function") || !dlerror())
		return 3;
	if (dlsym(dlopen("libc.so.6", RTLD_NOW), "cuLaunchKernel"))
		return 4;
	return 0;
}
#endif
